//! A shared segment as a slice of atomic words.

use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// A segment or part of one, as 64-bit atomics.
#[derive(Clone, Copy)]
pub struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    /// Views memory of this process.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Words(words)
    }

    /// Views a mapped segment.
    ///
    /// # Safety
    /// - `base` must be 8-byte aligned, and `bytes` bytes from it must stay mapped for `'a`;
    /// - the mapping must be readable, and writable if the caller stores.
    #[cfg(not(tiptoe_loom))]
    pub unsafe fn from_raw(base: *const u8, bytes: usize) -> Self {
        // SAFETY: the caller guarantees alignment and lifetime. Any bits are a valid atomic, which other processes may
        // change.
        Words(unsafe { core::slice::from_raw_parts(base.cast(), bytes / 8) })
    }

    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the address in this process.
    #[inline]
    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// Returns the words.
    pub fn atomics(&self) -> &'a [AtomicU64] {
        self.0
    }

    /// Returns whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a word; `None` past the end.
    #[inline]
    pub fn at(&self, index: usize) -> Option<&'a AtomicU64> {
        self.0.get(index)
    }

    /// Loads a word; 0 past the end. Relaxed: the edges of `lib.rs` give the order.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        self.at(index).map_or(0, |word| word.load(Relaxed))
    }

    /// Stores a word, unless past the end. Relaxed, as in `load`.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.at(index) {
            word.store(value, Relaxed);
        }
    }

    /// Adds to a word that several threads may add to.
    #[inline]
    pub fn add(&self, index: usize, count: u64) {
        if let Some(word) = self.at(index) {
            word.fetch_add(count, Relaxed); // only the number matters
        }
    }

    /// Adds to an *own* word, which only the thread and its signal handlers write, so one instruction without `lock` is
    /// enough.
    #[inline]
    pub fn add_own(&self, index: usize, count: u64) {
        let Some(word) = self.at(index) else { return };
        #[cfg(not(any(tiptoe_loom, miri)))]
        // SAFETY: `word` is live and aligned. Other threads only read the old or the new value.
        unsafe {
            core::arch::asm!("add qword ptr [{}], {}", in(reg) word.as_ptr(), in(reg) count,
                             options(nostack));
        }
        #[cfg(any(tiptoe_loom, miri))]
        word.fetch_add(count, Relaxed);
    }

    /// Adds 1 to an own word; returns the new value. One instruction does both, because a separate load would wait for
    /// the addition's store.
    #[inline]
    pub fn count_own(&self, index: usize) -> u64 {
        let Some(word) = self.at(index) else { return 0 };
        #[cfg(not(any(tiptoe_loom, miri)))]
        {
            let mut count = 1u64;
            // SAFETY: as in `add_own`.
            unsafe {
                core::arch::asm!("xadd qword ptr [{}], {}", in(reg) word.as_ptr(), inout(reg) count,
                                 options(nostack));
            }
            count.wrapping_add(1)
        }
        #[cfg(any(tiptoe_loom, miri))]
        word.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Sets an own word if it is 0. Returns whether the word was 0.
    #[inline]
    pub fn take_own(&self, index: usize, value: u64) -> bool {
        // Relaxed: orders no data. Atomic, because a signal handler may store a value.
        let taken = |word: &AtomicU64| word.compare_exchange(0, value, Relaxed, Relaxed).is_ok();
        self.at(index).is_some_and(taken)
    }

    /// Sets an own word if it is `seen`. Returns whether the word was `seen`.
    #[inline]
    pub fn exchange_own(&self, index: usize, seen: u64, value: u64) -> bool {
        let Some(word) = self.at(index) else {
            return false;
        };
        #[cfg(not(any(tiptoe_loom, miri)))]
        {
            let found: u64;
            // SAFETY: as in `add_own`.
            unsafe {
                core::arch::asm!("cmpxchg qword ptr [{}], {}", in(reg) word.as_ptr(), in(reg) value,
                                 inout("rax") seen => found, options(nostack));
            }
            found == seen
        }
        #[cfg(any(tiptoe_loom, miri))]
        word.compare_exchange(seen, value, Relaxed, Relaxed).is_ok()
    }

    /// Returns a word's low half as a futex.
    #[cfg(not(tiptoe_loom))]
    pub fn futex(&self, index: usize) -> Option<&'a core::sync::atomic::AtomicU32> {
        self.at(index).map(|word| {
            let half = word.as_ptr().cast();
            // SAFETY: `half` is the little-endian low half of a live, aligned word. Both types are atomics. No process
            // stores the word with one size and accesses it with the other.
            unsafe { &*half }
        })
    }

    /// Returns the words `[start, start + len)`; `None` if not all exist.
    pub fn part(&self, start: usize, len: usize) -> Option<Words<'a>> {
        self.0.get(start..start.checked_add(len)?).map(Words)
    }
}
