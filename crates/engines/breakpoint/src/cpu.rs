//! A register file of one CPU.

use crate::histogram::Histogram;
use crate::words::Words;

/// `[number of CPU-wide slots | the holder of each | histogram of tasks]`. See
/// [`crate::constraints`].
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

    /// Takes slots that the caller checked to be free.
    pub(crate) fn add(&self, holder: u64, weight: u32) {
        let wide = self.wide();
        for slot in wide..wide.saturating_add(weight) {
            self.words.store(1 + slot as usize, holder);
        }
        self.words.store(0, u64::from(wide.saturating_add(weight)));
    }

    /// Releases slots, unless the holder has fewer.
    pub(crate) fn remove(&self, holder: u64, weight: u32) -> bool {
        let held = self.holders().filter(|&id| id == holder).count();
        if held < weight as usize {
            return false;
        }
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
        true
    }

    pub(crate) fn tasks(&self) -> Histogram<'a> {
        Histogram(self.words.part(1 + self.levels, self.levels))
    }
}
