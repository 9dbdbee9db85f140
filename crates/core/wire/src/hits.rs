//! Hits of breakpoints that a thread of the program meets itself: a ring that all threads share, in a data segment
//! without counters.
//!
//! Many writers, in signal handlers; one reader, tiptoe. A hit costs the trap of many microseconds, so one shared word
//! that says whose the next cell is costs nothing beside it, and gives the hits of all threads one order.
//!
//! 1. *reserve*: move the head on, unless it is a whole ring ahead of the tail;
//! 2. write the cell, and its first word last, which says which position it is of.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | H: a hit is complete | its mark in [`Cell::complete`] | [`Hits::at`] |
//! | I: a hit was read | the tail in [`Hits::set_tail`] | [`Hits::reserve`] |
//! | E: something was missed | the number in [`Hits::next_epoch`], the flags in [`Hits::set_resting`] and [`Hits::set_waking`] | [`Hits::epoch`] |
//!
//! # Cells that are not complete
//! A writer blocks all signals but those of its own breakpoints, so it leaves a cell behind only where the process ends
//! or a debugger holds the thread. The reader waits for it; meanwhile the ring may run full, and hits are lost and
//! counted. In the end it steps over what is left.

use crate::geometry::Geometry;
#[cfg(not(tiptoe_loom))]
use crate::primitive::Ordering::SeqCst;
use crate::primitive::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::words::Words;

mod epoch;
mod reader;

pub use epoch::Epoch;
pub use reader::{Read, Reader};

/// Cells of the ring; a power of two.
pub const CELLS: usize = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 2,
    (_, true) => 8,
    _ => 8192,
};
/// Words of the stack that a hit keeps.
pub const STACK: usize = if cfg!(tiptoe_loom) { 1 } else { 128 };
/// Words of the accounting of debug registers: `tiptoe-breakpoint` has them.
pub const ACCOUNTING: usize = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 1,
    (_, true) => 64,
    _ => 1 << 20,
};
/// How many threads are known at a time; a power of two.
const THREADS: usize = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 2,
    (_, true) => 256,
    _ => 1 << 15,
};
/// A thread is in one of so many places.
const PLACES: usize = if cfg!(tiptoe_loom) { 2 } else { 16 };

/// Words in front.
mod head {
    pub(super) const HEAD: usize = 0;
    pub(super) const TAIL: usize = 1;
    pub(super) const LOST: usize = 2;
    pub(super) const IS_ON: usize = 3;
    pub(super) const WINDOW: usize = 4;
    pub(super) const ALLOWED: usize = 5;
    pub(super) const IS_RESTING: usize = 6;
    pub(super) const ASKED: usize = 7;
    #[cfg(not(tiptoe_loom))]
    pub(super) const WAITED_FOR: usize = 8;
    pub(super) const EXECS: usize = 9;
    pub(super) const GAPS: usize = 10;
    pub(super) const STRAYS: usize = 11;
    pub(super) const EPOCH: usize = 12;
    pub(super) const IS_WAKING: usize = 13;
    pub(super) const WORDS: usize = 16;
}

/// Words of a cell.
mod cell {
    pub(super) const MARK: usize = 0;
    pub(super) const ADDRESS: usize = 1;
    /// Above it whether it came late.
    pub(super) const TID: usize = 2;
    pub(super) const TIME: usize = 3;
    pub(super) const IP: usize = 4;
    pub(super) const FLAGS: usize = 5;
    pub(super) const NAME: usize = 6;
    pub(super) const REGISTERS: usize = 8;
    /// Above it whether it is a gap.
    pub(super) const EPOCH: usize = 24;
    /// How many bytes were read of what follows: the value, then the stack.
    pub(super) const BYTES: usize = 25;
    pub(super) const VALUE: usize = 26;
    pub(super) const STACK: usize = 27;
    pub(super) const WORDS: usize = STACK + super::STACK;
}

const THREADS_AT: usize = head::WORDS;
const CELLS_AT: usize = THREADS_AT + THREADS;
/// Behind the cells, from a multiple of 128 bytes on.
const ACCOUNTING_AT: usize = (CELLS_AT + CELLS * cell::WORDS).next_multiple_of(16);
/// Words of everything.
pub const WORDS: u32 = (ACCOUNTING_AT + ACCOUNTING) as u32;

impl Geometry {
    /// A segment for hits, behind so many slots that sites of earlier sessions name.
    pub fn for_hits(from: u32) -> Geometry {
        Geometry {
            slots: Self::hits_slot(from).saturating_add(WORDS),
            slabs: 2,
            rings: false,
        }
    }

    /// Where they lie in slab 0: at a multiple of 128 bytes.
    pub fn hits_slot(from: u32) -> u32 {
        from.max(Self::FIRST_SLOT).next_multiple_of(16)
    }
}

/// Where a thread was when it hit, and what it had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// The watched address.
    pub address: u64,
    /// The thread.
    pub tid: u32,
    /// It was told when the thread was elsewhere already, as it blocked the signal.
    pub is_late: bool,
    /// When, of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The instruction behind the access.
    pub ip: u64,
    /// The flags.
    pub flags: u64,
    /// The thread's name.
    pub name: [u64; 2],
    /// By their numbers in machine code.
    pub registers: [u64; 16],
    /// Whether the hits in front of it were told.
    pub epoch: Epoch,
}

/// What the agent's thread is asked, without waiting for it: it may come late where the program keeps all CPUs busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Wake the events: another window has begun.
    Wake = 1,
    /// Have threads that are no more give back what they reserved.
    Look = 2,
}

/// What is shared of hits.
#[derive(Clone, Copy)]
pub struct Hits<'a>(Words<'a>);

/// A cell that a writer has to itself.
pub struct Cell<'a> {
    words: Words<'a>,
    position: u64,
}

impl<'a> Hits<'a> {
    /// In these words; `None` where there are too few.
    pub fn new(words: Words<'a>) -> Option<Hits<'a>> {
        (words.len() >= WORDS as usize).then_some(Hits(words))
    }

    /// Whether hits count. (agent)
    pub fn is_on(&self) -> bool {
        self.0.load(head::IS_ON) != 0
    }

    /// Hits count from now on, or no longer. (tiptoe)
    pub fn set_on(&self, on: bool) {
        self.0.store(head::IS_ON, on.into());
    }

    /// So many hits are allowed in a window; 0 where there is no limit. (tiptoe)
    pub fn allow(&self, hits: u64) {
        self.0.store(head::ALLOWED, hits);
    }

    /// Counts a hit in the window; whether its allowance is used up by that. (agent)
    pub fn uses_up(&self) -> bool {
        let allowed = self.0.load(head::ALLOWED);
        // Relaxed: only the number matters.
        let hits = self
            .0
            .at(head::WINDOW)
            .map(|word| word.fetch_add(1, Relaxed));
        allowed != 0 && hits.is_some_and(|before| before.wrapping_add(1) >= allowed)
    }

    /// Hits in this window. (tiptoe)
    pub fn in_window(&self) -> u64 {
        self.0.load(head::WINDOW)
    }

    /// Begins the next window. (tiptoe)
    pub fn begin_window(&self) {
        self.0.store(head::WINDOW, 0);
    }

    /// The program calls exec now, or that has failed. (agent)
    pub fn set_execs(&self, execs: bool) {
        self.0.store(head::EXECS, execs.into());
    }

    /// Whether it has called exec: where its process is no more it ended in another program. (tiptoe)
    pub fn execs(&self) -> bool {
        self.0.load(head::EXECS) != 0
    }

    /// Other threads ran while there were no events for a moment. (agent)
    pub fn note_gap(&self) {
        self.next_epoch();
        if let Some(word) = self.0.at(head::GAPS) {
            word.fetch_add(1, Relaxed); // only the number matters
        }
    }

    /// How often that was so. (tiptoe)
    pub fn gaps(&self) -> u64 {
        self.0.load(head::GAPS)
    }

    /// A trap came without its reason. (agent)
    pub fn note_stray(&self) {
        self.next_epoch();
        if let Some(word) = self.0.at(head::STRAYS) {
            word.fetch_add(1, Relaxed); // only the number matters
        }
    }

    /// How often that was so. (tiptoe)
    pub fn strays(&self) -> u64 {
        self.0.load(head::STRAYS)
    }

    /// Whether the events rest.
    pub fn is_resting(&self) -> bool {
        self.0.load(head::IS_RESTING) != 0
    }

    /// They rest from now on, or no longer; whether that is new. (agent)
    pub fn set_resting(&self, rest: bool) -> bool {
        // AcqRel: pairs with the Acquire in `epoch` (edge E): who sees that they rest no longer sees that they wake.
        let word = self.0.at(head::IS_RESTING);
        let is_new = word.is_some_and(|word| word.swap(rest.into(), AcqRel) != u64::from(rest));
        if is_new && rest {
            self.next_epoch();
        }
        is_new
    }

    /// Asks for something; the owner's word has to be woken behind that. (tiptoe)
    pub fn ask(&self, what: Asked) {
        if let Some(word) = self.0.at(head::ASKED) {
            // Relaxed: nothing else is told.
            word.fetch_or(what as u64, Relaxed);
        }
    }

    /// Whether something was asked for since the last time. (agent)
    pub fn is_asked(&self, what: Asked) -> bool {
        let (word, what) = (self.0.at(head::ASKED), what as u64);
        // Relaxed, as in `ask`. Only one thread takes bits away, each once.
        word.is_some_and(|word| {
            let is_asked = word.load(Relaxed) & what != 0;
            is_asked && word.fetch_sub(what, Relaxed) & what != 0
        })
    }

    /// Hits that found no room. (tiptoe)
    pub fn lost(&self) -> u64 {
        self.0.load(head::LOST)
    }

    /// A hit was lost. (agent)
    pub fn lose(&self) {
        self.next_epoch();
        if let Some(word) = self.0.at(head::LOST) {
            word.fetch_add(1, Relaxed); // only the number matters
        }
    }

    /// The words of the accounting of debug registers.
    pub fn accounting(&self) -> Option<Words<'a>> {
        self.0.part(ACCOUNTING_AT, ACCOUNTING)
    }

    /// Notes a thread; whether it was not known. Where there is no room it is taken as known. (agent)
    pub fn meet(&self, tid: u32) -> bool {
        let (places, tid) = (self.places(tid), u64::from(tid));
        // Relaxed, here and below: a number, and nothing else, is told.
        if places.clone().any(|word| word.load(Relaxed) == tid) {
            return false;
        }
        let mut places = places;
        places.any(|word| word.compare_exchange(0, tid, Relaxed, Relaxed).is_ok())
    }

    /// Forgets the threads that `is_gone` names. (agent)
    pub fn part(&self, mut is_gone: impl FnMut(u32) -> bool) {
        for place in 0..THREADS {
            let tid = self.0.load(THREADS_AT + place);
            if tid != 0 && is_gone(tid as u32) {
                self.0.store(THREADS_AT + place, 0);
            }
        }
    }

    fn places(&self, tid: u32) -> impl Iterator<Item = &'a crate::primitive::AtomicU64> + Clone {
        let first = tid.wrapping_mul(0x9e37_79b9) as usize >> 8;
        let words = self.0;
        (0..PLACES).filter_map(move |place| words.at(THREADS_AT + (first + place) % THREADS))
    }

    /// The next cell; `None` where the ring is full. (agent)
    pub fn reserve(&self) -> Option<Cell<'a>> {
        let (head, tail) = (self.0.at(head::HEAD)?, self.0.at(head::TAIL)?);
        // Who loses the exchange so often has as many others in front of it.
        for _ in 0..CELLS {
            let position = head.load(Relaxed); // the exchange decides
            // Acquire: pairs with the Release in `set_tail` (edge I).
            if position.wrapping_sub(tail.load(Acquire)) >= CELLS as u64 {
                return None;
            }
            let next = position.wrapping_add(1);
            // AcqRel: whoever reserves next sees the tail that allowed this, or a later one.
            if head
                .compare_exchange(position, next, AcqRel, Relaxed)
                .is_ok()
            {
                let words = self.cell(position)?;
                return Some(Cell { words, position });
            }
        }
        None
    }

    /// Where a writer that found no room waits until something was read, as a futex; what stands there now. (agent)
    #[cfg(not(tiptoe_loom))]
    pub fn wait(&self) -> Option<(&'a core::sync::atomic::AtomicU32, u32)> {
        let tail = self.0.at(head::TAIL)?.load(Relaxed) as u32; // the futex looks again
        // SeqCst: in front of the futex's own look. A wake-up that is missed all the same the next reading makes up.
        self.0.at(head::WAITED_FOR)?.swap(1, SeqCst);
        Some((self.0.futex(head::TAIL)?, tail))
    }

    /// The futex, once anybody has waited: as many as there is room for now are to be woken, and may wait on. (tiptoe)
    #[cfg(not(tiptoe_loom))]
    pub fn waited_for(&self) -> Option<&'a core::sync::atomic::AtomicU32> {
        // SeqCst: behind the tail that was moved on, as in `wait`; an addition, so that it is a fence, too.
        let waited = self.0.at(head::WAITED_FOR)?.fetch_add(0, SeqCst) != 0;
        self.0.futex(head::TAIL).filter(|_| waited)
    }

    fn cell(&self, position: u64) -> Option<Words<'a>> {
        let at = CELLS_AT + position as usize % CELLS * cell::WORDS;
        self.0.part(at, cell::WORDS)
    }

    /// The words of a hit that is complete. (tiptoe)
    fn at(&self, position: u64) -> Option<Words<'a>> {
        let words = self.cell(position)?;
        // Acquire: pairs with the Release in `complete` (edge H).
        let mark = words.at(cell::MARK)?.load(Acquire);
        (mark == position.wrapping_add(1)).then_some(words)
    }

    /// Everything in front of this position was read. (tiptoe)
    fn set_tail(&self, position: u64) {
        if let Some(word) = self.0.at(head::TAIL) {
            // Release: pairs with the Acquire in `reserve` (edge I).
            word.store(position, Release);
        }
    }
}

impl Cell<'_> {
    /// Writes what is known at once.
    pub fn write(&self, hit: &Hit) {
        let late = u64::from(hit.is_late) << 32;
        let words = [
            (cell::ADDRESS, hit.address),
            (cell::TID, u64::from(hit.tid) | late),
            (cell::TIME, hit.time_ns),
            (cell::IP, hit.ip),
            (cell::FLAGS, hit.flags),
            (cell::EPOCH, hit.epoch.word()),
            (cell::NAME, hit.name[0]),
            (cell::NAME + 1, hit.name[1]),
        ];
        for (at, word) in words {
            self.words.store(at, word);
        }
        for (at, register) in hit.registers.iter().enumerate() {
            self.words.store(cell::REGISTERS + at, *register);
        }
    }

    /// Where the value goes, and the stack behind it, in bytes.
    pub fn room(&self) -> (u64, usize) {
        (self.words.address() + 8 * cell::VALUE as u64, 8 * STACK)
    }

    /// It is all there: so many bytes of the value and the stack.
    pub fn complete(self, bytes: u64) {
        self.words.store(cell::BYTES, bytes);
        if let Some(mark) = self.words.at(cell::MARK) {
            // Release: pairs with the Acquire in `Hits::at` (edge H).
            mark.store(self.position.wrapping_add(1), Release);
        }
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests;
