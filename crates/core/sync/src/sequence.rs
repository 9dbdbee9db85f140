//! A sequence count: odd while a writer is in.

use crate::primitive::{AtomicU64, Ordering, fence};

/// Counts the beginnings and ends of changes. Writers exclude each other by
/// other means.
#[derive(Debug)]
pub struct SeqCount(AtomicU64);

impl SeqCount {
    /// Nothing has changed yet.
    pub fn new() -> Self {
        SeqCount(AtomicU64::new(0))
    }

    /// Begins a look, unless a writer is in: a reader never waits for one, as
    /// the writer may have been interrupted by this very reader.
    #[inline]
    pub fn try_begin(&self) -> Option<u64> {
        // Acquire: pairs with the Release in `write_end` (edge E).
        let begun = self.0.load(Ordering::Acquire);
        (begun & 1 == 0).then_some(begun)
    }

    /// Whether what was read since `begun` is to be thrown away.
    #[inline]
    pub fn retry(&self, begun: u64) -> bool {
        // Acquire: what was read before is older than the load below; pairs with
        // the fence in `write_begin` (edge F).
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) != begun // ordered by the fence
    }

    /// The only writer begins to change.
    pub fn write_begin(&self) {
        let even = self.0.load(Ordering::Relaxed); // our own writes, or an earlier writer's by the lock
        self.0.store(even.wrapping_add(1), Ordering::Relaxed); // ordered by the fence
        // Release: whoever reads what is stored from here on finds the count odd
        // or moved; pairs with the fence in `retry` (edge F).
        fence(Ordering::Release);
    }

    /// The change is complete.
    pub fn write_end(&self) {
        let odd = self.0.load(Ordering::Relaxed); // our own write
        // Release: pairs with the Acquire in `try_begin` (edge E).
        self.0.store(odd.wrapping_add(1), Ordering::Release);
    }
}

impl Default for SeqCount {
    fn default() -> Self {
        Self::new()
    }
}
