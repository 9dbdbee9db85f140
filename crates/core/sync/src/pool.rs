//! Type-stable blocks of words.
//!
//! A freed block is reused only as a block, so a reader with an old index still reads a block. Callers must take and
//! free blocks under one lock; any thread may read.

use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// The blocks; in a new pool all are free.
#[derive(Debug)]
pub struct Pool<'a, const WORDS: usize> {
    blocks: &'a [[AtomicU64; WORDS]],
    /// The index of the last freed block plus one, or 0. A freed block's first word refers in the same form to the
    /// block freed before.
    given: AtomicU64,
    fresh: AtomicU64,
}

// Relaxed throughout: the caller's lock orders takes and frees, and readers validate by a sequence count.
impl<'a, const WORDS: usize> Pool<'a, WORDS> {
    /// Makes as many blocks as fit into `words`.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        let zero = || AtomicU64::new(0);
        Pool {
            blocks: words.as_chunks().0,
            given: zero(),
            fresh: zero(),
        }
    }

    /// Returns a block, if it exists. The block may be free, or in use for other data.
    #[inline]
    pub fn get(&self, index: u64) -> Option<&'a [AtomicU64; WORDS]> {
        self.blocks.get(usize::try_from(index).ok()?)
    }

    /// Takes a block, whose words are not zeroed; `None` if none is free.
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

    /// Frees a block, to which the caller's data must no longer refer.
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
    fn blocks_are_reused_in_any_order_and_never_twice() {
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
