//! A shared segment as a slice of atomic words.

use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// A segment, or a part of one, seen as 64-bit atomics.
#[derive(Clone, Copy)]
pub struct Words<'a>(&'a [AtomicU64]);

impl<'a> Words<'a> {
    /// Words of memory that this process owns (tests, private copies).
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Words(words)
    }

    /// Words of a mapped segment.
    ///
    /// # Safety
    /// - `base` is 8-byte aligned and `bytes` bytes from it stay mapped for `'a`;
    /// - the mapping is readable, and writable where the caller stores.
    #[cfg(not(tiptoe_loom))]
    pub unsafe fn from_raw(base: *const u8, bytes: usize) -> Self {
        // SAFETY: alignment and lifetime are the caller's; any bit pattern is a
        // valid AtomicU64, and atomics may be shared with other processes.
        Words(unsafe { core::slice::from_raw_parts(base.cast(), bytes / 8) })
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Where they begin in this process.
    #[inline]
    pub fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    /// The words themselves.
    pub fn atomics(&self) -> &'a [AtomicU64] {
        self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One word, or `None` past the end.
    #[inline]
    pub fn at(&self, index: usize) -> Option<&'a AtomicU64> {
        self.0.get(index)
    }

    /// Reads a word; 0 past the end. Relaxed: see the crate's table of edges.
    #[inline]
    pub fn load(&self, index: usize) -> u64 {
        self.at(index).map_or(0, |word| word.load(Relaxed))
    }

    /// Writes a word; nothing past the end. Relaxed: see the crate's table of edges.
    #[inline]
    pub fn store(&self, index: usize, value: u64) {
        if let Some(word) = self.at(index) {
            word.store(value, Relaxed);
        }
    }

    /// Adds to a word that one thread writes alone, with its signal handlers: by one
    /// instruction, which needs no lock.
    #[inline]
    pub fn add_own(&self, index: usize, count: u64) {
        let Some(word) = self.at(index) else { return };
        #[cfg(not(any(tiptoe_loom, miri)))]
        // SAFETY: a live, aligned word. Other threads only read it: they find it as it was
        // or as it is then.
        unsafe {
            core::arch::asm!("add qword ptr [{}], {}", in(reg) word.as_ptr(), in(reg) count,
                             options(nostack));
        }
        #[cfg(any(tiptoe_loom, miri))]
        word.fetch_add(count, Relaxed);
    }

    /// Adds 1 to such a word: how much it is then. Whoever needs that to go on waits for one
    /// instruction, not for a store and the load behind it.
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

    /// Puts a value into a word that is 0, of those that one thread writes alone. False
    /// where it was none.
    #[inline]
    pub fn take_own(&self, index: usize, value: u64) -> bool {
        // Relaxed: it orders nothing; atomic because a signal may interrupt it.
        let taken = |word: &AtomicU64| word.compare_exchange(0, value, Relaxed, Relaxed).is_ok();
        self.at(index).is_some_and(taken)
    }

    /// Puts a value into a word that holds `seen`, of those that one thread writes alone, with its signal handlers:
    /// by one instruction, which needs no lock. False where it holds another.
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

    /// The low half of a word as a futex.
    #[cfg(not(tiptoe_loom))]
    pub fn futex(&self, index: usize) -> Option<&'a core::sync::atomic::AtomicU32> {
        self.at(index).map(|word| {
            let half = word.as_ptr().cast();
            // SAFETY: little-endian low half of a live, aligned word; both types
            // are atomics, and no code mixes sizes on this word.
            unsafe { &*half }
        })
    }

    /// The words `[start, start + len)`, or `None` where they do not all exist.
    pub fn part(&self, start: usize, len: usize) -> Option<Words<'a>> {
        self.0.get(start..start.checked_add(len)?).map(Words)
    }
}
