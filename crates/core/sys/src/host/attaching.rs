//! How many functions an attach has worked on, for a user who waits for it. These are statics, because an attach is
//! work of many layers, and a process attaches once at a time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

// Relaxed: neither orders other data.
static ALL: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

/// Notes that work on this many functions begins.
pub fn begin(functions: usize) {
    DONE.store(0, Relaxed);
    ALL.store(functions as u64, Relaxed);
}

/// Notes that the work on this many more is done.
pub fn advance(functions: usize) {
    DONE.fetch_add(functions as u64, Relaxed);
}

/// Returns how many are done, and how many there are; `None` before the first work.
pub fn progress() -> Option<(u64, u64)> {
    let (done, all) = (DONE.load(Relaxed), ALL.load(Relaxed));
    (all > 0).then_some((done.min(all), all))
}
