//! How many tasks hold how many slots: one word for each number of slots from 1 on.

use crate::words::{Plain, Words};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram<'a>(pub Words<'a>);

impl Histogram<'_> {
    /// A task that held `from` slots holds `to`; nobody else changes the histogram meanwhile.
    #[inline]
    pub(crate) fn shift_alone(&self, from: u32, to: u32) {
        if let Some(at) = from.checked_sub(1) {
            self.0.add(at as usize, 1u64.wrapping_neg());
        }
        if let Some(at) = to.checked_sub(1) {
            self.0.add(at as usize, 1);
        }
    }

    /// The same where others may.
    pub(crate) fn shift(&self, from: u32, to: u32) {
        let word = |level: u32| self.0.get(level.checked_sub(1)? as usize);
        if let Some(word) = word(from) {
            word.add_shared(1u64.wrapping_neg());
        }
        if let Some(word) = word(to) {
            word.add_shared(1);
        }
    }

    /// The most that any task holds. Only who holds all shards may decide by it.
    pub(crate) fn max(&self) -> u32 {
        let most = self.0.iter().rposition(|tasks| tasks != 0);
        most.map_or(0, |at| at as u32 + 1)
    }
}
