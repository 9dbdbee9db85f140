//! The state of a *register file*: one CPU's debug registers (*slots*) of one kind. A CPU has one file for data and one
//! for instructions, or a single file for both.

use crate::histogram::Histogram;
use crate::primitive::{AtomicU64, Ordering, fence};
use crate::words::{PlainWord, Words};

/// `[number of reserved CPU-wide slots | the holder of each | histogram: tasks by their number of slots | number of
/// begun changes of the histogram | number of ended changes]`. See [`crate::constraints`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu<'a> {
    words: Words<'a>,
    levels: usize,
}

impl<'a> Cpu<'a> {
    #[inline]
    pub(crate) fn new(words: Words<'a>, levels: usize) -> Self {
        Cpu { words, levels }
    }

    #[inline]
    pub(crate) fn wide(&self) -> u32 {
        self.words.load(0) as u32
    }

    pub(crate) fn holders(&self) -> impl Iterator<Item = u64> + 'a {
        let taken = (self.wide() as usize).min(self.levels);
        self.words.part(1, self.levels).iter().take(taken)
    }

    /// Takes slots, which must be free.
    pub(crate) fn add(&self, holder: u64, weight: u32) {
        let wide = self.wide();
        for slot in wide..wide.saturating_add(weight) {
            self.words.store(1 + slot as usize, holder);
        }
        self.words.store(0, u64::from(wide.saturating_add(weight)));
    }

    pub(crate) fn has(&self, holder: u64, weight: u32) -> bool {
        self.holders().filter(|&id| id == holder).count() >= weight as usize
    }

    /// Releases slots that the holder must have.
    pub(crate) fn remove(&self, holder: u64, weight: u32) {
        let mut left = weight;
        let mut kept = 0;
        for (slot, id) in self.holders().enumerate() {
            if id == holder && left > 0 {
                left -= 1;
                continue;
            }
            if kept != slot {
                self.words.store(1 + kept, id);
            }
            kept += 1;
        }
        self.words.store(0, kept as u64);
    }

    pub(crate) fn tasks(&self) -> Histogram<'a> {
        Histogram(self.words.part(1 + self.levels, self.levels))
    }

    fn changes(&self) -> Option<(&'a AtomicU64, &'a AtomicU64)> {
        let at = 1 + 2 * self.levels;
        Some((self.words.get(at)?, self.words.get(at + 1)?))
    }

    /// Other threads may move other tasks concurrently.
    pub(crate) fn move_task(&self, from: u32, to: u32) {
        let Some((begun, ended)) = self.changes() else {
            return; // impossible: the layout has both
        };
        begun.add_shared(1);
        // Release: pairs with the Acquire fence in `most` (edge M of `lib.rs`). A reader that sees a part of the change
        // also sees the addition to `begun`.
        fence(Ordering::Release);
        self.tasks().shift_shared(from, to);
        // Release: pairs with the Acquire load in `most` (edge M). A reader that sees this addition also sees the whole
        // change.
        ended.fetch_add(1, Ordering::Release);
    }

    /// Returns the most slots of any task in the histogram; `None` if a change overlapped this call. Needs no lock.
    pub(crate) fn most(&self) -> Option<u32> {
        let (begun, ended) = self.changes()?;
        // Acquire: pairs with the Release in `move_task` (edge M).
        let ended = ended.load(Ordering::Acquire);
        let most = self.tasks().max();
        // Acquire: pairs with the Release fence in `move_task` (edge M).
        fence(Ordering::Acquire);
        (begun.read() == ended).then_some(most)
    }
}
