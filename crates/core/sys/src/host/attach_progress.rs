//! How many functions an attach has worked on, for a user who waits for it, and whether the user breaks it off. These are
//! statics, because an attach is work of many layers, and a process attaches once at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

// Relaxed: neither orders other data.
static ALL: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
static STOP: Mutex<Option<Arc<AtomicBool>>> = Mutex::new(None);

/// Sets the flag that breaks an attach off; `None` once the attach is over.
pub fn break_off_by(stop: Option<Arc<AtomicBool>>) {
    *STOP.lock().unwrap_or_else(PoisonError::into_inner) = stop;
}

/// Returns whether the attach must end with what is attached by now.
pub fn is_broken_off() -> bool {
    let stop = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    stop.as_ref().is_some_and(|stop| stop.load(Relaxed))
}

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
