//! The tasks' reservations: a multimap from task to entries. Only the thread that holds the lock of a *shard* (a group
//! of tasks) may touch the shard's chains and free entries.
//!
//! INVARIANT: a task's entries of one CPU and register file are adjacent in its chain, so that [`Runs`] sums them in
//! one pass.

use core::iter::Peekable;

use crate::geometry::{ENTRY, HEAD, MAX_SLOTS, head};
use crate::histogram::Histogram;
use crate::primitive::AtomicU64;
use crate::request::Request;
use crate::stats::{self, Counters};
use crate::words::{PlainWord, Words};

pub(crate) type Head = [AtomicU64; HEAD];
pub(crate) type Cell = [AtomicU64; ENTRY];

const TASK: usize = 0;
/// The next entry's index plus one.
const NEXT: usize = 1;
const CLASS: usize = 2;
const HOLDER: usize = 3;

#[derive(Debug)]
pub(crate) struct Entries<'a> {
    pub(crate) cells: &'a [Cell],
    pub(crate) fresh: &'a AtomicU64,
    pub(crate) batch: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shard<'a> {
    pub(crate) head: &'a Head,
    pub(crate) entries: &'a Entries<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Task<'a> {
    pub(crate) id: u64,
    pub(crate) shard: Shard<'a>,
    pub(crate) bucket: &'a AtomicU64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    link: u64,
    next: u64,
    pub(crate) task: u64,
    class: u64,
    pub(crate) holder: u64,
}

/// A task's slots (debug registers) in a register file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskSlots {
    pub(crate) everywhere: u32,
    /// Slots for the request's CPU only.
    pub(crate) here: u32,
    pub(crate) has_more_elsewhere: bool,
}

/// A task's slots for one CPU, or for all CPUs (`None`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) cpu: Option<u32>,
    pub(crate) slots: u32,
}

#[inline]
fn class(cpu: Option<u32>, file: usize, weight: u32) -> u64 {
    let cpu = cpu.map_or(0, |cpu| u64::from(cpu) + 1);
    (cpu << 1 | file as u64) << 8 | u64::from(weight)
}

impl Entry {
    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        (self.class & 0xff) as u32
    }

    #[inline]
    pub(crate) fn file(&self) -> usize {
        (self.class >> 8 & 1) as usize
    }

    #[inline]
    pub(crate) fn cpu(&self) -> Option<u32> {
        ((self.class >> 9) as u32).checked_sub(1)
    }
}

impl TaskSlots {
    #[inline]
    fn add(&mut self, entry: &Entry, cpu: Option<u32>) {
        let sum = match entry.cpu() {
            None => &mut self.everywhere,
            on if on == cpu => &mut self.here,
            _ => return self.has_more_elsewhere = true,
        };
        *sum = sum.saturating_add(entry.weight());
    }

    #[inline]
    fn has_like(&self, cpu: Option<u32>) -> bool {
        match cpu {
            Some(_) => self.here > 0,
            None => self.everywhere > 0,
        }
    }
}

#[inline]
fn cell(cells: &[Cell], link: u64) -> Option<&Cell> {
    cells.get(usize::try_from(link.checked_sub(1)?).ok()?)
}

impl<'a> Entries<'a> {
    #[inline]
    fn cell(&self, link: u64) -> Option<&'a Cell> {
        cell(self.cells, link)
    }

    #[inline]
    pub(crate) fn chain(&self, bucket: &AtomicU64) -> Chain<'a> {
        Chain {
            cells: self.cells,
            next: bucket.read(),
            left: self.cells.len(),
        }
    }
}

impl<'a> Shard<'a> {
    #[inline]
    pub(crate) fn histogram(&self, file: usize) -> Histogram<'a> {
        let levels = MAX_SLOTS as usize;
        let words = Words::new(self.head);
        Histogram(words.part(head::FILES + file * head::FILE + 1, levels))
    }

    #[inline]
    pub(crate) fn move_task(&self, file: usize, from: u32, to: u32) {
        let histogram = self.histogram(file);
        histogram.shift(from, to);
        let most = histogram.max_from(self.most(file).max(to));
        self.most_word(file).write(u64::from(most));
    }

    #[inline]
    fn most_word(&self, file: usize) -> &'a AtomicU64 {
        &self.head[head::FILES + file % 2 * head::FILE]
    }

    /// Returns the most slots of any task for all CPUs. Needs no lock.
    #[inline]
    pub(crate) fn most(&self, file: usize) -> u32 {
        self.most_word(file).read() as u32
    }

    #[inline]
    pub(crate) fn counters(&self) -> Counters<'a> {
        Counters(Words::new(self.head).part(head::STATS, stats::WORDS))
    }

    #[inline]
    fn free(&self) -> &'a AtomicU64 {
        &self.head[head::FREE]
    }

    /// Returns whether [`Shard::take`] will find an entry. If the shard has none, it gets entries that were never used.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.free().read() != 0 || self.take_fresh()
    }

    #[cold]
    fn take_fresh(&self) -> bool {
        let &Entries {
            cells,
            fresh,
            batch,
        } = self.entries;
        if fresh.read() >= cells.len() as u64 {
            return false;
        }
        let first = fresh.add_shared(batch as u64) as usize;
        let taken = first..cells.len().min(first.saturating_add(batch));
        taken.rev().for_each(|index| self.give(index as u64 + 1));
        self.free().read() != 0
    }

    #[inline]
    pub(crate) fn take(&self) -> Option<(u64, &'a Cell)> {
        let link = self.free().read();
        let cell = self.entries.cell(link)?;
        self.free().write(cell[NEXT].read());
        Some((link, cell))
    }

    #[inline]
    pub(crate) fn give(&self, link: u64) {
        if let Some(cell) = self.entries.cell(link) {
            cell[NEXT].write(self.free().read());
            self.free().write(link);
        }
    }
}

impl<'a> Task<'a> {
    #[inline]
    pub(crate) fn all(&self, file: usize) -> impl Iterator<Item = Entry> {
        let (id, chain) = (self.id, self.shard.entries.chain(self.bucket));
        chain.filter(move |entry| entry.task == id && entry.file() == file)
    }

    #[inline]
    pub(crate) fn slots(&self, file: usize, cpu: Option<u32>) -> TaskSlots {
        let mut held = TaskSlots::default();
        self.all(file).for_each(|entry| held.add(&entry, cpu));
        held
    }

    pub(crate) fn runs(&self, file: usize) -> Runs<impl Iterator<Item = Entry>> {
        Runs(self.all(file).peekable())
    }

    /// Records a reservation, and keeps the module's invariant. `held` excludes the reservation.
    #[inline]
    pub(crate) fn insert(&self, request: &Request, file: usize, held: &TaskSlots) {
        let class = class(request.cpu(), file, request.weight);
        let Some((link, cell)) = self.shard.take() else {
            return; // impossible: the check found room
        };
        cell[TASK].write(self.id);
        cell[CLASS].write(class);
        cell[HOLDER].write(request.holder);
        let like = held.has_like(request.cpu()).then(|| {
            let mut chain = self.shard.entries.chain(self.bucket);
            chain.find(|entry| entry.task == self.id && entry.class >> 8 == class >> 8)
        });
        let before = self.link(like.flatten().map(|like| like.link));
        cell[NEXT].write(before.read());
        before.write(link);
    }

    /// Returns what the task still holds; `None` if the reservation was not found.
    #[inline]
    pub(crate) fn remove(&self, request: &Request, file: usize) -> Option<TaskSlots> {
        let cpu = request.cpu();
        let class = class(cpu, file, request.weight);
        let (mut held, mut found, mut before) = (TaskSlots::default(), None, None);
        for entry in self.shard.entries.chain(self.bucket) {
            if entry.task == self.id {
                let is_it = entry.class == class && entry.holder == request.holder;
                if is_it && found.is_none() {
                    found = Some((before, entry));
                } else if entry.file() == file {
                    held.add(&entry, cpu);
                }
            }
            before = Some(entry.link);
        }
        let (before, entry) = found?;
        self.link(before).write(entry.next);
        self.shard.give(entry.link);
        Some(held)
    }

    /// Returns the word that links to the entry after `entry`; for `None`, to the first entry.
    #[inline]
    fn link(&self, entry: Option<u64>) -> &'a AtomicU64 {
        let cell = entry.and_then(|link| self.shard.entries.cell(link));
        cell.map_or(self.bucket, |cell| &cell[NEXT])
    }
}

/// A bucket's entries. Ends even if corrupted links form a circle.
pub(crate) struct Chain<'a> {
    cells: &'a [Cell],
    next: u64,
    left: usize,
}

impl Iterator for Chain<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        let link = self.next;
        let cell = cell(self.cells, link)?;
        self.left = self.left.checked_sub(1)?;
        self.next = cell[NEXT].read();
        Some(Entry {
            link,
            next: self.next,
            task: cell[TASK].read(),
            class: cell[CLASS].read(),
            holder: cell[HOLDER].read(),
        })
    }
}

pub(crate) struct Runs<I: Iterator<Item = Entry>>(Peekable<I>);

impl<I: Iterator<Item = Entry>> Iterator for Runs<I> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let first = self.0.next()?;
        let mut slots = first.weight();
        while let Some(more) = self.0.next_if(|entry| entry.cpu() == first.cpu()) {
            slots = slots.saturating_add(more.weight());
        }
        Some(Run {
            cpu: first.cpu(),
            slots,
        })
    }
}
