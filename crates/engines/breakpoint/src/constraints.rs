//! The rules that count debug registers (*slots*). A `_locked` function needs the lock of the task's *shard* (the tasks
//! under one lock); for a CPU's request, the lock of CPUs.
//!
//! A task's request is for all CPUs or for one. A shard's histogram counts tasks by their slots for all CPUs. A CPU's
//! histogram counts only tasks with slots for that CPU alone, by these slots plus their slots for all CPUs.
//!
//! INVARIANT: a CPU's histogram never counts a task with fewer slots than the task's shard does. So the most slots of
//! any task on a CPU are the larger of two maxima: the shards' and the CPU's. A request for all CPUs needs no loop over
//! CPUs, because it is counted in one shard, and the header has the most CPU-wide slots of any CPU.

use crate::cpu::Cpu;
use crate::error::Error;
use crate::geometry::{Geometry, Layout, header};
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::request::{Request, Target};
use crate::stats::{self, Counters};
use crate::tasks::{Cell, Entries, Head, Shard, Task, TaskSlots};
use crate::words::Words;

#[derive(Debug)]
pub(crate) struct Constraints<'a> {
    pub(crate) geometry: Geometry,
    pub(crate) layout: Layout,
    header: Words<'a>,
    heads: &'a [Head],
    pub(crate) buckets: &'a [AtomicU64],
    cpus: Words<'a>,
    pub(crate) entries: Entries<'a>,
}

/// A request and the state of its target. Passed by reference, because a copy costs as much as the counting.
#[derive(Debug)]
pub(crate) struct ResolvedRequest<'a> {
    pub(crate) request: &'a Request,
    pub(crate) file: usize,
    pub(crate) target: ResolvedTarget<'a>,
}

#[derive(Debug)]
pub(crate) enum ResolvedTarget<'a> {
    Task { task: Task<'a>, index: usize },
    Cpu(u32),
}

/// Small, because the hot path returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenyReason {
    /// All slots of this CPU are taken.
    NoSlot(u32),
    Full,
}

#[derive(Clone, Copy)]
enum Change {
    Add,
    Remove,
}

impl ResolvedRequest<'_> {
    /// Returns the shard to lock; `None` means all.
    #[inline]
    pub(crate) fn shard(&self) -> Option<usize> {
        match self.target {
            ResolvedTarget::Task { index, .. } => Some(index),
            ResolvedTarget::Cpu(_) => None,
        }
    }
}

impl Change {
    #[inline]
    fn ends(self, without: u32, with: u32) -> (u32, u32) {
        match self {
            Change::Add => (without, with),
            Change::Remove => (with, without),
        }
    }
}

impl<'a> Constraints<'a> {
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

    /// Finds the state of a request's target. `None` is impossible, because every task has a shard and a bucket.
    #[inline]
    pub(crate) fn resolve<'s>(&'s self, request: &'s Request) -> Option<ResolvedRequest<'s>> {
        let target = match request.target {
            Target::Cpu(cpu) => ResolvedTarget::Cpu(cpu),
            Target::Task { task, .. } => {
                let (index, task) = self.task(task)?;
                ResolvedTarget::Task { task, index }
            }
        };
        let file = self.geometry.file(request.kind);
        Some(ResolvedRequest {
            request,
            file,
            target,
        })
    }

    #[inline]
    pub(crate) fn task(&self, id: u64) -> Option<(usize, Task<'_>)> {
        let (index, bucket) = self.layout.shard_and_bucket(id);
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

    pub(crate) fn shards(&self) -> impl Iterator<Item = Shard<'_>> {
        let entries = &self.entries;
        self.heads.iter().map(move |head| Shard { head, entries })
    }

    #[inline]
    pub(crate) fn cpu(&self, cpu: u32, file: usize) -> Cpu<'a> {
        let words = self.cpus.piece(cpu as usize, self.layout.cpu_stride);
        let words = words.piece(file, self.layout.file_words);
        Cpu::new(words, self.layout.levels)
    }

    /// Returns a shard's counters; for `None`, those of [`crate::Side::Writer`].
    #[inline]
    pub(crate) fn counters(&self, shard: Option<usize>) -> Counters<'_> {
        match shard.and_then(|index| self.shard(index)) {
            Some(shard) => shard.counters(),
            None => Counters(self.header.part(header::STATS, stats::WORDS)),
        }
    }

    /// Returns what the task already holds. Fails if the request cannot be granted.
    #[inline]
    pub(crate) fn check_locked(&self, resolved: &ResolvedRequest) -> Result<TaskSlots, DenyReason> {
        let ResolvedTarget::Task { task, .. } = &resolved.target else {
            return self.check_cpu_locked(resolved);
        };
        let held = task.slots(resolved.file, resolved.request.cpu());
        self.check_task_locked(resolved, task, &held)?;
        match task.shard.has_room() {
            true => Ok(held),
            false => Err(DenyReason::Full),
        }
    }

    /// Checks a task's request against CPU-wide slots. `held` excludes the request.
    #[inline]
    fn check_task_locked(
        &self,
        resolved: &ResolvedRequest,
        task: &Task,
        held: &TaskSlots,
    ) -> Result<(), DenyReason> {
        let file = resolved.file;
        let own = held.everywhere.saturating_add(resolved.request.weight);
        if let Some(cpu) = resolved.request.cpu() {
            let own = own.saturating_add(held.here);
            return self.fits(resolved, own, self.cpu(cpu, file).wide(), || cpu);
        }
        let widest = self.widest(file);
        self.fits(resolved, own, widest, || self.first_with(file, widest))?;
        match held.has_more_elsewhere {
            true => self.check_runs_locked(resolved, task, own),
            false => Ok(()),
        }
    }

    #[inline]
    pub(crate) fn check_again_locked(
        &self,
        resolved: &ResolvedRequest,
        held: &TaskSlots,
    ) -> Result<(), DenyReason> {
        let ResolvedTarget::Task { task, .. } = &resolved.target else {
            return Ok(());
        };
        // SeqCst: the record must be visible before CPU-wide slots are read (edge A of `lib.rs`). Pairs with the fence
        // in `fits_beside_tasks_locked`.
        fence(Ordering::SeqCst);
        self.check_task_locked(resolved, task, held)
    }

    /// Returns whether a CPU's request fits beside the CPU-wide slots.
    pub(crate) fn has_room_for_locked(&self, resolved: &ResolvedRequest, cpu: u32) -> bool {
        let Request { weight, kind, .. } = *resolved.request;
        let wide = self.cpu(cpu, resolved.file).wide().saturating_add(weight);
        wide <= self.geometry.slots(kind)
    }

    /// Returns whether a CPU's recorded request fits beside all tasks. Needs no shard's lock. Without all shards'
    /// locks, `false` is not final, because the count may include a task's request that will be refused.
    #[cold]
    pub(crate) fn fits_beside_tasks_locked(&self, resolved: &ResolvedRequest, cpu: u32) -> bool {
        // SeqCst: the record must be visible before tasks' slots are read (edge A). Pairs with the fence in
        // `check_again_locked`.
        fence(Ordering::SeqCst);
        let registers = self.cpu(cpu, resolved.file);
        let Some(on_this) = registers.most() else {
            return false;
        };
        let most = self.most_on_all(resolved.file).max(on_this);
        most.saturating_add(registers.wide()) <= self.geometry.slots(resolved.request.kind)
    }

    #[cold]
    fn check_runs_locked(
        &self,
        resolved: &ResolvedRequest,
        task: &Task,
        own: u32,
    ) -> Result<(), DenyReason> {
        task.runs(resolved.file).try_for_each(|run| {
            let Some(cpu) = run.cpu else { return Ok(()) };
            let own = own.saturating_add(run.slots);
            self.fits(resolved, own, self.cpu(cpu, resolved.file).wide(), || cpu)
        })
    }

    #[cold]
    fn check_cpu_locked(&self, resolved: &ResolvedRequest) -> Result<TaskSlots, DenyReason> {
        let cpu = resolved.request.cpu().unwrap_or(0);
        let own = self.most(cpu, resolved.file);
        let own = own.saturating_add(resolved.request.weight);
        self.fits(resolved, own, self.cpu(cpu, resolved.file).wide(), || cpu)?;
        Ok(TaskSlots::default())
    }

    #[inline]
    fn fits(
        &self,
        resolved: &ResolvedRequest,
        own: u32,
        wide: u32,
        cpu: impl FnOnce() -> u32,
    ) -> Result<(), DenyReason> {
        match own.saturating_add(wide) <= self.geometry.slots(resolved.request.kind) {
            true => Ok(()),
            false => Err(DenyReason::NoSlot(cpu())),
        }
    }

    /// Returns the most slots of any task on a CPU. All shards must be held.
    pub(crate) fn most(&self, cpu: u32, file: usize) -> u32 {
        let on_this = self.cpu(cpu, file).tasks().max();
        self.most_on_all(file).max(on_this)
    }

    fn most_on_all(&self, file: usize) -> u32 {
        let most = self.shards().map(|shard| shard.most(file));
        most.fold(0, u32::max)
    }

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

    #[inline]
    pub(crate) fn add_locked(&self, resolved: &ResolvedRequest, held: &TaskSlots) {
        match &resolved.target {
            ResolvedTarget::Task { task, .. } => {
                self.count(resolved, task, held, Change::Add);
                task.insert(resolved.request, resolved.file, held);
            }
            &ResolvedTarget::Cpu(cpu) => {
                let registers = self.cpu(cpu, resolved.file);
                registers.add(resolved.request.holder, resolved.request.weight);
                let widest = self.widest(resolved.file).max(registers.wide());
                self.set_widest(resolved.file, widest);
            }
        }
    }

    /// Records a removed request again, because its replacement was refused. The locks must have been held since the
    /// removal.
    #[cold]
    pub(crate) fn restore_locked(&self, resolved: &ResolvedRequest) {
        let held = match &resolved.target {
            ResolvedTarget::Task { task, .. } => task.slots(resolved.file, resolved.request.cpu()),
            ResolvedTarget::Cpu(_) => TaskSlots::default(),
        };
        self.add_locked(resolved, &held);
    }

    /// Removes a request; calls `release` before the slots are free. Returns `false` if the request was not reserved.
    #[inline]
    pub(crate) fn remove_locked(&self, resolved: &ResolvedRequest, release: impl FnOnce()) -> bool {
        match &resolved.target {
            ResolvedTarget::Task { task, .. } => {
                let left = task.remove(resolved.request, resolved.file);
                if let Some(left) = &left {
                    release();
                    self.count(resolved, task, left, Change::Remove);
                }
                left.is_some()
            }
            &ResolvedTarget::Cpu(cpu) => {
                let Request { holder, weight, .. } = *resolved.request;
                let is_held = self.cpu(cpu, resolved.file).has(holder, weight);
                if is_held {
                    release();
                    self.remove_wide_locked(resolved, cpu);
                }
                is_held
            }
        }
    }

    #[cold]
    fn remove_wide_locked(&self, resolved: &ResolvedRequest, cpu: u32) {
        let Request { holder, weight, .. } = *resolved.request;
        self.cpu(cpu, resolved.file).remove(holder, weight);
        let cpus = (0..self.geometry.cpus()).map(|cpu| self.cpu(cpu, resolved.file));
        let widest = cpus.map(|cpu| cpu.wide()).max();
        self.set_widest(resolved.file, widest.unwrap_or(0));
    }

    /// Does not store an equal value, because a store would take the cache line from the CPUs that reserve for tasks.
    fn set_widest(&self, file: usize, slots: u32) {
        if self.widest(file) != slots {
            self.header.store(header::WIDEST + file, u64::from(slots));
        }
    }

    /// `held` excludes the request.
    #[inline]
    fn count(&self, resolved: &ResolvedRequest, task: &Task, held: &TaskSlots, change: Change) {
        let with = held.everywhere.saturating_add(resolved.request.weight);
        let Some(cpu) = resolved.request.cpu() else {
            let (from, to) = change.ends(held.everywhere, with);
            task.shard.move_task(resolved.file, from, to);
            if held.has_more_elsewhere {
                self.count_runs(resolved, task, held, change);
            }
            return;
        };
        let without = match held.here {
            0 => 0, // not in the CPU's histogram
            here => held.everywhere.saturating_add(here),
        };
        let (from, to) = change.ends(without, with.saturating_add(held.here));
        self.cpu(cpu, resolved.file).move_task(from, to);
    }

    /// Counts a task's request for all CPUs in the histogram of each CPU for which the task has separate slots.
    #[cold]
    fn count_runs(
        &self,
        resolved: &ResolvedRequest,
        task: &Task,
        held: &TaskSlots,
        change: Change,
    ) {
        for run in task.runs(resolved.file) {
            let Some(cpu) = run.cpu else { continue };
            let without = held.everywhere.saturating_add(run.slots);
            let with = without.saturating_add(resolved.request.weight);
            let (from, to) = change.ends(without, with);
            self.cpu(cpu, resolved.file).move_task(from, to);
        }
    }

    /// Moves other shards' free entries to the task's shard, if that has none. All shards must be held.
    #[cold]
    pub(crate) fn gather_locked(&self, resolved: &ResolvedRequest) {
        let ResolvedTarget::Task { task, index } = &resolved.target else {
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

    pub(crate) fn held_locked(&self, resolved: &ResolvedRequest) -> u32 {
        match &resolved.target {
            ResolvedTarget::Task { task, .. } => {
                task_slots(task, resolved.file, resolved.request.cpu())
            }
            &ResolvedTarget::Cpu(cpu) => self.cpu(cpu, resolved.file).wide(),
        }
    }

    /// All shards must be held.
    pub(crate) fn is_empty_locked(&self) -> bool {
        let is_zero = |words: Words| words.iter().all(|word| word == 0);
        let mut buckets = self.buckets.iter();
        let has_none = buckets.all(|bucket| self.entries.chain(bucket).next().is_none());
        has_none
            && (0..self.layout.files).all(|file| {
                let mut cpus = (0..self.geometry.cpus()).map(|cpu| self.cpu(cpu, file));
                self.widest(file) == 0
                    && cpus.all(|cpu| cpu.wide() == 0 && is_zero(cpu.tasks().0))
                    && self
                        .shards()
                        .all(|shard| shard.most(file) == 0 && is_zero(shard.histogram(file).0))
            })
    }

    pub(crate) fn head_words(&self) -> &'a [AtomicU64] {
        self.heads.as_flattened()
    }

    pub(crate) fn cpus_words(&self) -> &'a [AtomicU64] {
        self.header.part(header::CPUS, 1).slice()
    }

    pub(crate) fn backend_words(&self) -> &'a [AtomicU64] {
        self.header.part(header::BACKEND, 1).slice()
    }
}

pub(crate) fn task_slots(task: &Task, file: usize, cpu: Option<u32>) -> u32 {
    let held = task.slots(file, cpu);
    held.everywhere.saturating_add(held.here)
}
