//! Counts tasks by the number of slots (debug registers) that they hold. Word `n - 1` counts the tasks with `n` slots.

use crate::geometry::MAX_SLOTS;
use crate::words::{PlainWord, Words};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram<'a>(pub Words<'a>);

impl Histogram<'_> {
    /// No other thread may change the histogram.
    #[inline]
    pub(crate) fn shift(&self, from: u32, to: u32) {
        if let Some(at) = from.checked_sub(1) {
            self.0.add(at as usize, 1u64.wrapping_neg());
        }
        if let Some(at) = to.checked_sub(1) {
            self.0.add(at as usize, 1);
        }
    }

    /// Moves a task, atomically, because other threads may change the histogram.
    pub(crate) fn shift_shared(&self, from: u32, to: u32) {
        let word = |level: u32| self.0.get(level.checked_sub(1)? as usize);
        if let Some(word) = word(from) {
            word.add_shared(1u64.wrapping_neg());
        }
        if let Some(word) = word(to) {
            word.add_shared(1);
        }
    }

    /// Returns the most slots of any task, which must be at most `most`.
    #[inline]
    pub(crate) fn max_from(&self, most: u32) -> u32 {
        let mut most = most.min(MAX_SLOTS);
        while let Some(below) = most.checked_sub(1)
            && self.0.load(below as usize) == 0
        {
            most = below;
        }
        most
    }

    pub(crate) fn max(&self) -> u32 {
        let most = self.0.iter().rposition(|tasks| tasks != 0);
        most.map_or(0, |at| at as u32 + 1)
    }
}
