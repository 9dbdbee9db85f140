//! The hook that keeps a histogram of waits for each lock and call site.

#[cfg(feature = "std")]
use core::cell::Cell;
use core::time::Duration;

use crate::hook::Hook;
#[cfg(feature = "std")]
use crate::table::Entry;
use crate::table::Table;
use crate::told::{Lock, Mode, Outcome};

/// How many rows there may be, one for each lock, mode, call site and thread that waits there.
/// Memory is taken as they come.
///
/// ```
/// assert!(tiptoe_lock::waits().rows().count() <= tiptoe_lock::WAIT_ROWS);
/// ```
pub const WAIT_ROWS: usize = 4096;

static WAITS: Table<WAIT_ROWS> = Table::new();

/// Keeps a histogram of waits for each lock, mode and call site: see [`waits`].
///
/// A lock that is free takes one load and one branch more than the bare one.
///
/// ```
/// use tiptoe_lock::{Mutex, Waits, waits};
///
/// static JOBS: Mutex<Vec<u32>, Waits> = Mutex::new(Vec::new());
///
/// std::thread::scope(|scope| {
///     for job in 0..4 {
///         scope.spawn(move || JOBS.lock().push(job));
///     }
/// });
/// for row in waits().rows() {
///     println!("{row}");
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits;

#[cfg(feature = "std")]
std::thread_local! {
    /// Where the wait will be counted that this thread is in: what takes long to find is found before it
    /// has the lock.
    static HERE: Cell<Option<&'static Entry>> = const { Cell::new(None) };
}

impl Hook for Waits {
    const INIT: Self = Waits;
    const WAITS: bool = true;

    #[cfg(feature = "std")]
    #[inline]
    fn contention_begin(&self, lock: &Lock, mode: Mode) {
        HERE.set(WAITS.find(lock, mode));
    }

    #[inline]
    fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
        #[cfg(feature = "std")]
        if let Some(entry) = HERE.get().filter(|entry| entry.is_for(lock, mode)) {
            return entry.add_time(waited, outcome);
        }
        WAITS.add(lock, mode, outcome, waited);
    }
}

/// What all [`Waits`] of this program have kept so far.
///
/// ```
/// use tiptoe_lock::waits;
///
/// let total_ns: u64 = waits().rows().map(|row| row.total_ns).sum();
/// assert_eq!(total_ns, 0, "nobody waits here");
/// ```
pub fn waits() -> &'static Table<WAIT_ROWS> {
    &WAITS
}
