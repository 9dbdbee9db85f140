//! Blocks of words that are never anything else.
//!
//! A block that was given back is taken again, but stays a block: a reader that
//! still holds its index reads words of another use, never something that is
//! none. Only the holder of a lock takes and gives; anybody reads.

use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// The blocks, of `WORDS` words. Zeroed storage holds none that is taken.
#[derive(Debug)]
pub struct Pool<'a, const WORDS: usize> {
    blocks: &'a [[AtomicU64; WORDS]],
    /// One more than the block that was given back last; its first word names
    /// the one before it in the same way.
    given: AtomicU64,
    /// How many were ever taken.
    fresh: AtomicU64,
}

// Relaxed throughout: takers are ordered by their lock, and readers check their
// sequence count.
impl<'a, const WORDS: usize> Pool<'a, WORDS> {
    /// As many blocks as fit.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let zero = || AtomicU64::new(0);
        Pool {
            blocks: words.as_chunks().0,
            given: zero(),
            fresh: zero(),
        }
    }

    /// The words of a block, whatever they are now.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&'a [AtomicU64; WORDS]> {
        self.blocks.get(usize::try_from(index).ok()?)
    }

    /// Takes a block, with whatever is in it.
    pub fn take(&self) -> Option<u64> {
        if let Some(index) = self.given.load(Relaxed).checked_sub(1) {
            let before = self.get(index)?.first()?.load(Relaxed);
            self.given.store(before, Relaxed);
            return Some(index);
        }
        let index = self.fresh.load(Relaxed);
        self.get(index)?;
        self.fresh.store(index + 1, Relaxed);
        Some(index)
    }

    /// Gives a block back that was taken and that nothing names any more.
    pub fn give(&self, index: u64) {
        if let Some(word) = self.get(index).and_then(|block| block.first()) {
            word.store(self.given.load(Relaxed), Relaxed);
            self.given.store(index + 1, Relaxed);
        }
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_in_any_order_and_never_twice() {
        let words: [AtomicU64; 7] = core::array::from_fn(|_| AtomicU64::new(0));
        let pool = Pool::<2>::new(&words);
        assert_eq!(
            [(); 4].map(|()| pool.take()),
            [Some(0), Some(1), Some(2), None]
        );
        pool.give(1);
        pool.give(0);
        pool.give(2);
        assert_eq!(
            [(); 4].map(|()| pool.take()),
            [Some(2), Some(0), Some(1), None]
        );
        assert!(pool.get(3).is_none() && pool.get(u64::MAX).is_none());
    }
}
