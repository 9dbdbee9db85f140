//! Hits of breakpoints that the program's threads handle themselves. All threads share one ring, after the threads'
//! counters.
//!
//! Writers are signal handlers; tiptoe is the one reader. All writers share one head, which orders the hits, and costs
//! little compared with a trap. A writer advances the head to reserve a cell, unless the ring is full. Then it writes
//! the cell, the first word last.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | H: a hit is complete | [`Cell::complete`] | [`Hits::at`] |
//! | I: a hit was read | [`Hits::set_tail`] | [`Hits::reserve`] |
//! | K: a store may be missed | [`Hits::next_epoch`], [`Hits::set_resting`], [`Hits::set_waking`] | [`Hits::epoch`] |
//!
//! A writer blocks all signals but its breakpoints', so only the process's end or a debugger leaves a cell incomplete.
//! The reader waits for an incomplete cell until the session ends.

#[cfg(not(tiptoe_loom))]
use crate::primitive::Ordering::SeqCst;
use crate::primitive::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::words::Words;

mod epoch;
mod reader;
mod threads;

pub use epoch::Epoch;
pub use reader::{HitReader, RecordedHit};
pub use threads::{Meeting, NewThread};

/// Cells of the ring; a power of two.
pub const CELLS: usize = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 2,
    (_, true) => 8,
    _ => 8192,
};
/// Words of stack in a hit.
pub const STACK: usize = if cfg!(tiptoe_loom) { 1 } else { 128 };
/// Words of the accounting of debug registers (`tiptoe-breakpoint`).
pub const ACCOUNTING: usize = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 1,
    (_, true) => 64,
    _ => 1 << 20,
};
/// Capacity of the table of threads; a power of two.
const THREADS: usize = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 2,
    (_, true) => 256,
    _ => 1 << 15,
};
/// Entries of that table that a search for a thread probes.
const PLACES: usize = if cfg!(tiptoe_loom) { 2 } else { 16 };

mod head {
    pub(super) const HEAD: usize = 0;
    pub(super) const TAIL: usize = 1;
    pub(super) const LOST: usize = 2;
    pub(super) const IS_ON: usize = 3;
    pub(super) const WINDOW: usize = 4;
    pub(super) const ALLOWED: usize = 5;
    pub(super) const IS_RESTING: usize = 6;
    pub(super) const REQUESTED: usize = 7;
    #[cfg(not(tiptoe_loom))]
    pub(super) const WAITED_FOR: usize = 8;
    pub(super) const EXECS: usize = 9;
    pub(super) const GAPS: usize = 10;
    pub(super) const STRAYS: usize = 11;
    pub(super) const EPOCH: usize = 12;
    pub(super) const IS_WAKING: usize = 13;
    pub(super) const REFUSED: usize = 14;
    pub(super) const UNRESERVED: usize = 15;
    pub(super) const WORDS: usize = 16;
}

mod cell {
    pub(super) const MARK: usize = 0;
    pub(super) const ADDRESS: usize = 1;
    /// The thread; above it whether the hit is late.
    pub(super) const TID: usize = 2;
    pub(super) const TIME: usize = 3;
    pub(super) const IP: usize = 4;
    pub(super) const FLAGS: usize = 5;
    pub(super) const NAME: usize = 6;
    pub(super) const REGISTERS: usize = 8;
    /// The [`super::Epoch`]; the top bit marks a gap.
    pub(super) const EPOCH: usize = 24;
    /// Readable bytes of value and stack.
    pub(super) const BYTES: usize = 25;
    pub(super) const VALUE: usize = 26;
    pub(super) const STACK: usize = 27;
    pub(super) const WORDS: usize = STACK + super::STACK;
}

const THREADS_AT: usize = head::WORDS;
const CELLS_AT: usize = THREADS_AT + THREADS;
const ACCOUNTING_AT: usize = (CELLS_AT + CELLS * cell::WORDS).next_multiple_of(16);
/// Words of all areas of hits.
pub const WORDS: u32 = (ACCOUNTING_AT + ACCOUNTING) as u32;

/// A thread's state at a hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// The watched address.
    pub address: u64,
    /// The thread.
    pub tid: u32,
    /// Whether this is a later state, because the thread blocked the signal at the hit.
    pub is_late: bool,
    /// The time of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// The instruction after the access.
    pub ip: u64,
    /// The flags register.
    pub flags: u64,
    /// The thread's name.
    pub name: [u64; 2],
    /// The general registers in machine order.
    pub registers: [u64; 16],
    /// The epoch at the hit.
    pub epoch: Epoch,
}

/// A request for tiptoe's thread in the program. No thread waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncRequest {
    /// Enable the events, because a new window (period of the budget) began.
    Wake = 1,
    /// Release the debug registers that ended threads reserved, and make the reservations that new threads failed to
    /// make.
    Look = 2,
}

/// The shared words of hits.
#[derive(Clone, Copy)]
pub struct Hits<'a>(Words<'a>);

/// A reserved cell.
pub struct Cell<'a> {
    words: Words<'a>,
    position: u64,
}

impl<'a> Hits<'a> {
    /// Views words; `None` if there are too few.
    pub fn new(words: Words<'a>) -> Option<Hits<'a>> {
        (words.len() >= WORDS as usize).then_some(Hits(words))
    }

    /// Returns whether hits are recorded.
    pub fn is_on(&self) -> bool {
        self.0.load(head::IS_ON) != 0
    }

    /// Starts or stops recording.
    pub fn set_on(&self, on: bool) {
        self.0.store(head::IS_ON, on.into());
    }

    /// Sets the most hits until the next [`Hits::begin_window`]; 0 for no limit.
    pub fn allow(&self, hits: u64) {
        self.0.store(head::ALLOWED, hits);
    }

    /// Counts a hit. Returns whether the window now has all allowed hits.
    pub fn uses_up(&self) -> bool {
        let allowed = self.0.load(head::ALLOWED);
        // Relaxed: only the number matters.
        let hits = self
            .0
            .at(head::WINDOW)
            .map(|word| word.fetch_add(1, Relaxed));
        allowed != 0 && hits.is_some_and(|before| before.wrapping_add(1) >= allowed)
    }

    /// Returns the window's hits.
    pub fn in_window(&self) -> u64 {
        self.0.load(head::WINDOW)
    }

    /// Begins the next window.
    pub fn begin_window(&self) {
        self.0.store(head::WINDOW, 0);
    }

    /// Records whether the program is calling exec.
    pub fn set_execs(&self, execs: bool) {
        self.0.store(head::EXECS, execs.into());
    }

    /// Returns whether the process ended in exec.
    pub fn execs(&self) -> bool {
        self.0.load(head::EXECS) != 0
    }

    /// Records that threads ran while not all events were open.
    pub fn note_gap(&self) {
        self.next_epoch();
        self.0.add(head::GAPS, 1);
    }

    /// Returns how often [`Hits::note_gap`] was called.
    pub fn gaps(&self) -> u64 {
        self.0.load(head::GAPS)
    }

    /// Counts a SIGTRAP without a cause.
    pub fn note_stray(&self) {
        self.next_epoch();
        self.0.add(head::STRAYS, 1);
    }

    /// Returns the number of SIGTRAPs without a cause.
    pub fn strays(&self) -> u64 {
        self.0.load(head::STRAYS)
    }

    /// Returns whether the events are disabled until the next window.
    pub fn is_resting(&self) -> bool {
        self.0.load(head::IS_RESTING) != 0
    }

    /// Sets [`Hits::is_resting`]. Returns whether the flag changed.
    pub fn set_resting(&self, rest: bool) -> bool {
        // AcqRel: pairs with `epoch` (edge K). A thread that sees the flag cleared must see `IS_WAKING` set.
        let word = self.0.at(head::IS_RESTING);
        let is_new = word.is_some_and(|word| word.swap(rest.into(), AcqRel) != u64::from(rest));
        if is_new && rest {
            self.next_epoch();
        }
        is_new
    }

    /// Makes a request. The caller must wake [`crate::Data::owner`].
    pub fn ask(&self, what: AsyncRequest) {
        if let Some(word) = self.0.at(head::REQUESTED) {
            // Relaxed: the bit publishes no other data.
            word.fetch_or(what as u64, Relaxed);
        }
    }

    /// Takes a request; false if none was made.
    pub fn take_request(&self, what: AsyncRequest) -> bool {
        let (word, what) = (self.0.at(head::REQUESTED), what as u64);
        // Relaxed, as in `ask`. Only one thread clears bits, so the bit is still set at the subtraction.
        word.is_some_and(|word| {
            let is_made = word.load(Relaxed) & what != 0;
            is_made && word.fetch_sub(what, Relaxed) & what != 0
        })
    }

    /// Returns the number of lost hits.
    pub fn lost(&self) -> u64 {
        self.0.load(head::LOST)
    }

    /// Counts a hit for which the ring has no room.
    pub fn lose(&self) {
        self.next_epoch();
        self.0.add(head::LOST, 1);
    }

    /// Returns the accounting of debug registers.
    pub fn accounting(&self) -> Option<Words<'a>> {
        self.0.part(ACCOUNTING_AT, ACCOUNTING)
    }

    /// Reserves the next cell; `None` if the ring is full.
    pub fn reserve(&self) -> Option<Cell<'a>> {
        let (head, tail) = (self.0.at(head::HEAD)?, self.0.at(head::TAIL)?);
        // Bounded: each lost exchange means that another writer reserved a cell.
        for _ in 0..CELLS {
            let position = head.load(Relaxed); // the exchange decides
            // Acquire: pairs with `set_tail` (edge I).
            if position.wrapping_sub(tail.load(Acquire)) >= CELLS as u64 {
                return None;
            }
            let next = position.wrapping_add(1);
            // AcqRel: a writer that sees this head must also see the tail that allowed it.
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

    /// Returns the futex of writers that wait for room, with its value.
    #[cfg(not(tiptoe_loom))]
    pub fn wait(&self) -> Option<(&'a core::sync::atomic::AtomicU32, u32)> {
        let tail = self.0.at(head::TAIL)?.load(Relaxed) as u32; // Relaxed: the futex call compares again
        // SeqCst: the flag is set before the futex call loads the tail, and the reader stores the tail before it loads
        // the flag. So the call sees the new tail, or the reader wakes the writer.
        self.0.at(head::WAITED_FOR)?.swap(1, SeqCst);
        Some((self.0.futex(head::TAIL)?, tail))
    }

    /// Returns the futex if a writer has ever waited. The caller must wake as many writers as the ring has room for.
    #[cfg(not(tiptoe_loom))]
    pub fn waited_for(&self) -> Option<&'a core::sync::atomic::AtomicU32> {
        // SeqCst: pairs with `wait`. Adds 0, because a plain load could overtake the store of the tail.
        let waited = self.0.at(head::WAITED_FOR)?.fetch_add(0, SeqCst) != 0;
        self.0.futex(head::TAIL).filter(|_| waited)
    }

    fn cell(&self, position: u64) -> Option<Words<'a>> {
        let at = CELLS_AT + position as usize % CELLS * cell::WORDS;
        self.0.part(at, cell::WORDS)
    }

    fn at(&self, position: u64) -> Option<Words<'a>> {
        let words = self.cell(position)?;
        // Acquire: pairs with `complete` (edge H).
        let mark = words.at(cell::MARK)?.load(Acquire);
        (mark == position.wrapping_add(1)).then_some(words)
    }

    fn set_tail(&self, position: u64) {
        if let Some(word) = self.0.at(head::TAIL) {
            // Release: pairs with `reserve` (edge I).
            word.store(position, Release);
        }
    }
}

impl Cell<'_> {
    /// Writes the state.
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

    /// Returns the address for the watched value, and how many bytes of stack fit after the value.
    pub fn room(&self) -> (u64, usize) {
        (self.words.address() + 8 * cell::VALUE as u64, 8 * STACK)
    }

    /// Publishes the cell with `bytes` of value and stack.
    pub fn complete(self, bytes: u64) {
        self.words.store(cell::BYTES, bytes);
        if let Some(mark) = self.words.at(cell::MARK) {
            // Release: pairs with `Hits::at` (edge H).
            mark.store(self.position.wrapping_add(1), Release);
        }
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests;
