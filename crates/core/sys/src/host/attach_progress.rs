//! The progress of an attach to a process, and whether the user has cancelled the attach.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

// Relaxed: the counts order no other data.
static ALL: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Sets the flag that ends an attach early.
pub fn break_off_by(stop: Option<Arc<AtomicBool>>) {
    *STOP.lock().unwrap_or_else(PoisonError::into_inner) = stop;
}

/// Returns whether the attach must end early.
pub fn is_broken_off() -> bool {
    let stop = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    stop.as_ref().is_some_and(|stop| stop.load(Relaxed))
}

/// Begins work on this many functions.
pub fn begin(functions: usize) {
    DONE.store(0, Relaxed);
    ALL.store(functions as u64, Relaxed);
}

/// Adds functions that are done.
pub fn advance(functions: usize) {
    DONE.fetch_add(functions as u64, Relaxed);
}

/// Returns how many functions are done, of how many; `None` before [`begin`].
pub fn progress() -> Option<(u64, u64)> {
    let (done, all) = (DONE.load(Relaxed), ALL.load(Relaxed));
    (all > 0).then_some((done.min(all), all))
}
