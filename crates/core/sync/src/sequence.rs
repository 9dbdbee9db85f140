//! A sequence count, which is odd during a change.

use crate::primitive::{AtomicU64, Ordering, fence};

/// Counts begins and ends of changes. Writers must exclude each other.
#[derive(Debug)]
pub struct SeqCount(AtomicU64);

impl SeqCount {
    /// Returns a count without changes.
    pub fn new() -> Self {
        SeqCount(AtomicU64::new(0))
    }

    /// Begins a read; `None` during a change. The caller must not wait for the writer, because a signal handler that
    /// interrupted the writer would deadlock.
    #[inline]
    pub fn try_begin(&self) -> Option<u64> {
        // Acquire: pairs with `write_end` (edge E of `lib.rs`).
        let begun = self.0.load(Ordering::Acquire);
        (begun & 1 == 0).then_some(begun)
    }

    /// Returns whether what was read since `begun` must be discarded.
    #[inline]
    pub fn retry(&self, begun: u64) -> bool {
        // Acquire: orders the caller's reads before the load below; pairs with `write_begin` (edge F).
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) != begun // ordered by the fence
    }

    /// Begins a change.
    pub fn write_begin(&self) {
        let even = self.0.load(Ordering::Relaxed); // Relaxed: no other thread writes the count now
        self.0.store(even.wrapping_add(1), Ordering::Relaxed); // ordered by the fence
        // Release: a reader that sees a store after this fence finds the count changed; pairs with `retry` (edge F).
        fence(Ordering::Release);
    }

    /// Ends a change.
    pub fn write_end(&self) {
        let odd = self.0.load(Ordering::Relaxed); // Relaxed: as in `write_begin`
        // Release: pairs with `try_begin` (edge E).
        self.0.store(odd.wrapping_add(1), Ordering::Release);
    }
}

impl Default for SeqCount {
    fn default() -> Self {
        Self::new()
    }
}
