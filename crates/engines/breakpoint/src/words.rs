//! The words of the accounting's memory, the *state*. A word outside reads as 0 and is not written. No function here
//! panics, because another process may have written anything.

use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// All accesses are Relaxed, because the locks, and the fences of edges A and M ([`crate`]), order them.
pub(crate) trait PlainWord {
    fn read(&self) -> u64;
    fn write(&self, value: u64);
    /// Adds to a word that only the caller writes.
    fn add(&self, value: u64);
    /// Adds to a word that other threads add to. Returns the old value.
    fn add_shared(&self, value: u64) -> u64;
}

impl PlainWord for AtomicU64 {
    #[inline]
    fn read(&self) -> u64 {
        self.load(Relaxed)
    }

    #[inline]
    fn write(&self, value: u64) {
        self.store(value, Relaxed);
    }

    #[inline]
    fn add(&self, value: u64) {
        self.write(self.read().wrapping_add(value));
    }

    #[inline]
    fn add_shared(&self, value: u64) -> u64 {
        self.fetch_add(value, Relaxed)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Words(words)
    }

    /// Returns `count` words; none if the state ends earlier.
    #[inline]
    pub(crate) fn part(&self, from: usize, count: usize) -> Words<'a> {
        let end = from.saturating_add(count);
        Words(self.0.get(from..end).unwrap_or_default())
    }

    #[inline]
    pub(crate) fn piece(&self, index: usize, size: usize) -> Words<'a> {
        self.part(index.saturating_mul(size), size)
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<&'a AtomicU64> {
        self.0.get(at)
    }

    #[inline]
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.get(at).map_or(0, PlainWord::read)
    }

    #[inline]
    pub(crate) fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.get(at) {
            word.write(value);
        }
    }

    #[inline]
    pub(crate) fn add(&self, at: usize, value: u64) {
        if let Some(word) = self.get(at) {
            word.add(value);
        }
    }

    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + 'a {
        self.0.iter().map(PlainWord::read)
    }

    pub(crate) fn slice(&self) -> &'a [AtomicU64] {
        self.0
    }
}
