//! The counting rules. Everything `_locked` is called by who holds the request's shard, or
//! all.
//!
//! A task is counted once among those of its shard, by the slots that it holds on all CPUs,
//! and once more on each CPU where it holds others besides, by all that it holds there. The
//! most that any task holds on a CPU is the larger of the two maxima, as the second count of
//! a task is never below its first. So no count ever moves over all CPUs.

use crate::cpu::Cpu;
use crate::error::{Conflict, Error, Holder};
use crate::geometry::{Geometry, Layout, header};
use crate::primitive::AtomicU64;
use crate::request::{Request, Target};
use crate::stats::{self, Counters};
use crate::tasks::{Cell, Entries, Head, Held, Shard, Task};
use crate::words::Words;

/// The whole state.
#[derive(Debug)]
pub(crate) struct Constraints<'a> {
    pub(crate) geometry: Geometry,
    pub(crate) layout: Layout,
    header: Words<'a>,
    heads: &'a [Head],
    buckets: &'a [AtomicU64],
    cpus: Words<'a>,
    entries: Entries<'a>,
}

/// A request, and where what it needs is. It is not copied: a copy costs as much as all the
/// counting.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) request: &'a Request,
    file: usize,
    place: Place<'a>,
}

#[derive(Debug)]
enum Place<'a> {
    Task { task: Task<'a>, index: usize },
    Cpu(u32),
}

/// Why a request cannot be granted: as short as the hot path wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// All slots of this CPU are taken.
    NoSlot(u32),
    /// The task's shard has no entry left.
    Full,
}

/// A count is added or taken away.
#[derive(Clone, Copy)]
enum Change {
    Add,
    Remove,
}

impl Asked<'_> {
    /// The shard that it needs; all where there is none.
    #[inline]
    pub(crate) fn shard(&self) -> Option<usize> {
        match self.place {
            Place::Task { index, .. } => Some(index),
            Place::Cpu(_) => None,
        }
    }
}

impl Change {
    /// From how many slots to how many, of those without a request and those with it.
    #[inline]
    fn ends(self, without: u32, with: u32) -> (u32, u32) {
        match self {
            Change::Add => (without, with),
            Change::Remove => (with, without),
        }
    }
}

impl<'a> Constraints<'a> {
    /// None where there are too few words.
    pub(crate) fn new(geometry: Geometry, words: &'a [AtomicU64]) -> Option<Self> {
        let layout = Layout::new(&geometry);
        let part = |from: usize, to: usize| words.get(from..to);
        let header = Words::new(part(0, header::WORDS)?);
        let cells: &[Cell] = part(layout.entries_at, layout.words)?.as_chunks().0;
        Some(Constraints {
            geometry,
            header,
            heads: part(header::WORDS, layout.buckets_at)?.as_chunks().0,
            buckets: part(layout.buckets_at, layout.cpus_at)?,
            cpus: Words::new(part(layout.cpus_at, layout.entries_at)?),
            entries: Entries {
                cells,
                fresh: header.get(header::FRESH)?,
                batch: layout.batch,
            },
            layout,
        })
    }

    /// Whether a request makes sense here.
    #[inline]
    pub(crate) fn validate(&self, request: &Request) -> Result<(), Error> {
        if let Some(cpu) = request.cpu().filter(|&cpu| cpu >= self.geometry.cpus()) {
            return Err(Error::NoCpu(cpu));
        }
        match (1..=self.geometry.slots(request.kind)).contains(&request.weight) {
            true => Ok(()),
            false => Err(Error::Weight(request.weight)),
        }
    }

    /// Where what a request needs is; there is always something.
    #[inline]
    pub(crate) fn asked<'s>(&'s self, request: &'s Request) -> Option<Asked<'s>> {
        let place = match request.target {
            Target::Cpu(cpu) => Place::Cpu(cpu),
            Target::Task { task, .. } => {
                let (index, task) = self.task(task)?;
                Place::Task { task, index }
            }
        };
        let file = self.geometry.file(request.kind);
        Some(Asked {
            request,
            file,
            place,
        })
    }

    /// A task, and the number of its shard.
    #[inline]
    fn task(&self, id: u64) -> Option<(usize, Task<'_>)> {
        let (index, bucket) = self.layout.place(id);
        let task = Task {
            id,
            shard: self.shard(index)?,
            bucket: self.buckets.get(bucket)?,
        };
        Some((index, task))
    }

    #[inline]
    fn shard(&self, index: usize) -> Option<Shard<'_>> {
        Some(Shard {
            head: self.heads.get(index)?,
            entries: &self.entries,
        })
    }

    fn shards(&self) -> impl Iterator<Item = Shard<'_>> {
        let entries = &self.entries;
        self.heads.iter().map(move |head| Shard { head, entries })
    }

    #[inline]
    fn cpu(&self, cpu: u32, file: usize) -> Cpu<'a> {
        let words = self.cpus.piece(cpu as usize, self.layout.cpu_stride);
        let words = words.piece(file, self.layout.file_words);
        Cpu::new(words, self.layout.levels)
    }

    /// The counters of a shard, or the writers'.
    #[inline]
    pub(crate) fn counters(&self, shard: Option<usize>) -> Counters<'_> {
        match shard.and_then(|index| self.shard(index)) {
            Some(shard) => shard.counters(),
            None => Counters(self.header.part(header::STATS, stats::WORDS)),
        }
    }

    /// Whether a request can be granted, and what its task holds so far. A CPU's needs all
    /// shards.
    #[inline]
    pub(crate) fn check_locked(&self, asked: &Asked) -> Result<Held, Denied> {
        let Place::Task { task, .. } = &asked.place else {
            return self.check_cpu_locked(asked);
        };
        let (file, cpu) = (asked.file, asked.request.cpu());
        let held = task.held(file, cpu);
        let own = held.everywhere.saturating_add(asked.request.weight);
        if let Some(cpu) = cpu {
            let own = own.saturating_add(held.here);
            self.fits(asked, own, self.cpu(cpu, file).wide(), || cpu)?;
        } else {
            let widest = self.widest(file);
            self.fits(asked, own, widest, || self.first_with(file, widest))?;
            if held.elsewhere {
                self.check_runs_locked(asked, task, own)?;
            }
        }
        match task.shard.has_room() {
            true => Ok(held),
            false => Err(Denied::Full),
        }
    }

    /// The CPUs on which a task holds more than on all.
    #[cold]
    fn check_runs_locked(&self, asked: &Asked, task: &Task, own: u32) -> Result<(), Denied> {
        task.runs(asked.file).try_for_each(|run| {
            let Some(cpu) = run.cpu else { return Ok(()) };
            let own = own.saturating_add(run.slots);
            self.fits(asked, own, self.cpu(cpu, asked.file).wide(), || cpu)
        })
    }

    #[cold]
    fn check_cpu_locked(&self, asked: &Asked) -> Result<Held, Denied> {
        let cpu = asked.request.cpu().unwrap_or(0);
        let own = self.most(cpu, asked.file);
        let own = own.saturating_add(asked.request.weight);
        self.fits(asked, own, self.cpu(cpu, asked.file).wide(), || cpu)?;
        Ok(Held::default())
    }

    #[inline]
    fn fits(
        &self,
        asked: &Asked,
        own: u32,
        wide: u32,
        cpu: impl FnOnce() -> u32,
    ) -> Result<(), Denied> {
        match own.saturating_add(wide) <= self.geometry.slots(asked.request.kind) {
            true => Ok(()),
            false => Err(Denied::NoSlot(cpu())),
        }
    }

    /// The most that a task holds on a CPU; needs all shards.
    fn most(&self, cpu: u32, file: usize) -> u32 {
        let on_all = self.shards().map(|shard| shard.histogram(file).max());
        let on_this = self.cpu(cpu, file).tasks().max();
        on_all.fold(on_this, u32::max)
    }

    /// The most slots that are taken CPU-wide on any CPU.
    #[inline]
    fn widest(&self, file: usize) -> u32 {
        self.header.load(header::WIDEST + file) as u32
    }

    #[cold]
    fn first_with(&self, file: usize, wide: u32) -> u32 {
        let mut cpus = 0..self.geometry.cpus();
        cpus.find(|&cpu| self.cpu(cpu, file).wide() == wide)
            .unwrap_or(0)
    }

    /// Notes what was found to fit.
    #[inline]
    pub(crate) fn add_locked(&self, asked: &Asked, held: &Held) {
        match &asked.place {
            Place::Task { task, .. } => {
                self.count(asked, task, held, Change::Add);
                task.insert(asked.request, asked.file, held);
            }
            &Place::Cpu(cpu) => {
                let registers = self.cpu(cpu, asked.file);
                registers.add(asked.request.holder, asked.request.weight);
                let widest = self.widest(asked.file).max(registers.wide());
                self.set_widest(asked.file, widest);
            }
        }
    }

    /// Notes again what was forgotten in the same hold.
    #[cold]
    pub(crate) fn restore_locked(&self, asked: &Asked) {
        let held = match &asked.place {
            Place::Task { task, .. } => task.held(asked.file, asked.request.cpu()),
            Place::Cpu(_) => Held::default(),
        };
        self.add_locked(asked, &held);
    }

    /// Forgets what was noted; false where it was not.
    #[inline]
    pub(crate) fn remove_locked(&self, asked: &Asked) -> bool {
        match &asked.place {
            Place::Task { task, .. } => {
                let left = task.remove(asked.request, asked.file);
                if let Some(left) = &left {
                    self.count(asked, task, left, Change::Remove);
                }
                left.is_some()
            }
            &Place::Cpu(cpu) => self.remove_wide_locked(asked, cpu),
        }
    }

    #[cold]
    fn remove_wide_locked(&self, asked: &Asked, cpu: u32) -> bool {
        let Request { holder, weight, .. } = *asked.request;
        let was_held = self.cpu(cpu, asked.file).remove(holder, weight);
        let cpus = (0..self.geometry.cpus()).map(|cpu| self.cpu(cpu, asked.file));
        let widest = cpus.map(|cpu| cpu.wide()).max();
        self.set_widest(asked.file, widest.unwrap_or(0));
        was_held
    }

    fn set_widest(&self, file: usize, slots: u32) {
        self.header.store(header::WIDEST + file, u64::from(slots));
    }

    /// Counts a request of a task that holds `held` without it.
    #[inline]
    fn count(&self, asked: &Asked, task: &Task, held: &Held, change: Change) {
        let with = held.everywhere.saturating_add(asked.request.weight);
        let Some(cpu) = asked.request.cpu() else {
            let (from, to) = change.ends(held.everywhere, with);
            task.shard.histogram(asked.file).shift_alone(from, to);
            if held.elsewhere {
                self.count_runs(asked, task, held, change);
            }
            return;
        };
        let without = match held.here {
            0 => 0, // not counted on this CPU
            here => held.everywhere.saturating_add(here),
        };
        let (from, to) = change.ends(without, with.saturating_add(held.here));
        self.cpu(cpu, asked.file).tasks().shift(from, to);
    }

    /// On each CPU where the task holds more than on all.
    #[cold]
    fn count_runs(&self, asked: &Asked, task: &Task, held: &Held, change: Change) {
        for run in task.runs(asked.file) {
            let Some(cpu) = run.cpu else { continue };
            let without = held.everywhere.saturating_add(run.slots);
            let with = without.saturating_add(asked.request.weight);
            let (from, to) = change.ends(without, with);
            self.cpu(cpu, asked.file).tasks().shift(from, to);
        }
    }

    /// Moves entries that other shards have free to a task's, if that has none; needs all
    /// shards.
    #[cold]
    pub(crate) fn gather_locked(&self, asked: &Asked) {
        let Place::Task { task, index } = &asked.place else {
            return;
        };
        if task.shard.has_room() {
            return;
        }
        let others = self.shards().enumerate();
        let others = others.filter(|(other, _)| other != index);
        let free = others.flat_map(|(_, other)| core::iter::from_fn(move || other.take()));
        free.take(self.layout.batch)
            .for_each(|(link, _)| task.shard.give(link));
    }

    /// The whole of why a request was denied; a CPU's needs all shards.
    #[cold]
    pub(crate) fn explain_locked(&self, asked: &Asked, denied: Denied) -> Error {
        match denied {
            Denied::NoSlot(cpu) => Error::NoSlot(self.conflict(asked, cpu)),
            Denied::Full => Error::Full,
        }
    }

    /// Who is in the way of a request on this CPU.
    fn conflict(&self, asked: &Asked, cpu: u32) -> Conflict {
        let mut conflict = Conflict::new(asked.request, cpu);
        let task = match &asked.place {
            Place::Task { task, .. } => Some(*task),
            Place::Cpu(_) => self.task_with_most(cpu, asked.file),
        };
        conflict.task = task.map(|task| task.id);
        for task in task.iter() {
            let entries = task.all(asked.file);
            let covers = |on: Option<u32>| on.is_none_or(|on| on == cpu);
            entries
                .filter(|entry| covers(entry.cpu()))
                .for_each(|entry| {
                    conflict.add(Holder {
                        id: entry.holder,
                        is_wide: false,
                    });
                });
        }
        for id in self.cpu(cpu, asked.file).holders() {
            conflict.add(Holder { id, is_wide: true });
        }
        conflict
    }

    /// Looks at every reservation, as far as it must.
    fn task_with_most(&self, cpu: u32, file: usize) -> Option<Task<'_>> {
        let most = self.most(cpu, file);
        let mut buckets = self.buckets.iter().filter(|_| most > 0);
        buckets.find_map(|bucket| {
            let mut entries = self.entries.chain(bucket);
            entries.find_map(|entry| {
                let (_, task) = self.task(entry.task)?;
                (task_slots(&task, file, Some(cpu)) == most).then_some(task)
            })
        })
    }

    /// How many slots a target holds: a task those that it holds on the CPU.
    pub(crate) fn held_locked(&self, asked: &Asked) -> u32 {
        match &asked.place {
            Place::Task { task, .. } => task_slots(task, asked.file, asked.request.cpu()),
            &Place::Cpu(cpu) => self.cpu(cpu, asked.file).wide(),
        }
    }

    /// Whether nothing is reserved nor counted; needs all shards.
    pub(crate) fn is_empty_locked(&self) -> bool {
        let is_zero = |words: Words| words.iter().all(|word| word == 0);
        let mut buckets = self.buckets.iter();
        let has_none = buckets.all(|bucket| self.entries.chain(bucket).next().is_none());
        has_none
            && (0..self.layout.files).all(|file| {
                let mut cpus = (0..self.geometry.cpus()).map(|cpu| self.cpu(cpu, file));
                self.widest(file) == 0
                    && cpus.all(|cpu| cpu.wide() == 0 && is_zero(cpu.tasks().0))
                    && self.shards().all(|shard| is_zero(shard.histogram(file).0))
            })
    }

    pub(crate) fn head_words(&self) -> &'a [AtomicU64] {
        self.heads.as_flattened()
    }

    pub(crate) fn backend_words(&self) -> &'a [AtomicU64] {
        self.header.part(header::BACKEND, 1).slice()
    }
}

/// All that a task holds on a CPU.
fn task_slots(task: &Task, file: usize, cpu: Option<u32>) -> u32 {
    let held = task.held(file, cpu);
    held.everywhere.saturating_add(held.here)
}
