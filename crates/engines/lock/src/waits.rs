//! The hook [`Waits`].

#[cfg(feature = "std")]
use core::cell::Cell;
#[cfg(feature = "std")]
use core::panic::Location;
use core::time::Duration;

use crate::acquisition::{Lock, Mode, Outcome};
use crate::hook::Hook;
#[cfg(feature = "std")]
use crate::table::Entry;
use crate::table::Table;

/// The largest number of entries in [`waits`]. Each thread has an entry for each lock, mode and call site; a row merges
/// the entries of all threads.
///
/// ```
/// assert!(tiptoe_lock::waits().rows().count() <= tiptoe_lock::WAIT_ROWS);
/// ```
pub const WAIT_ROWS: usize = 4096;

static WAITS: Table<WAIT_ROWS> = Table::new();

/// A hook that keeps a histogram of waits for each lock, mode and call site: see [`waits`].
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
    /// This thread's entry for the current wait, looked up before the wait, because a later search would prolong the
    /// critical section.
    static CURRENT_WAIT: Cell<CurrentWait> = const { Cell::new((None, 0, None)) };
}

#[cfg(feature = "std")]
type CurrentWait = (
    Option<&'static Entry>,
    usize,
    Option<&'static Location<'static>>,
);

#[cfg(feature = "std")]
#[inline]
fn current_entry(lock: &Lock) -> Option<&'static Entry> {
    let (entry, address, site) = CURRENT_WAIT.get();
    let is_it = address == lock.address && site.is_some_and(|site| core::ptr::eq(site, lock.site));
    entry.filter(|_| is_it)
}

impl Hook for Waits {
    const INIT: Self = Waits;
    const WAITS: bool = true;

    #[cfg(feature = "std")]
    #[inline]
    fn contention_begin(&self, lock: &Lock, mode: Mode) {
        let entry = WAITS.find(lock, mode);
        if let Some(entry) = entry {
            entry.add_pending();
        }
        CURRENT_WAIT.set((entry, lock.address, Some(lock.site)));
    }

    #[inline]
    fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
        WAITS.add(lock, mode, outcome, waited);
    }

    #[cfg(feature = "std")]
    #[inline]
    fn contention_over(&self, lock: &Lock, mode: Mode, outcome: Outcome, ticks: u64) {
        let is_held_back = outcome == Outcome::Acquired
            && current_entry(lock).is_some_and(|entry| entry.hold_back(ticks));
        if !is_held_back {
            add_slow(lock, mode, outcome, ticks);
        }
    }
}

#[cfg(feature = "std")]
#[cold]
#[inline(never)]
fn add_slow(lock: &Lock, mode: Mode, outcome: Outcome, ticks: u64) {
    WAITS.add(lock, mode, outcome, Duration::from_nanos(Waits::ns(ticks)));
}

/// Returns what all [`Waits`] of this program have recorded.
///
/// ```
/// use tiptoe_lock::waits;
///
/// let total_ns: u64 = waits().rows().map(|row| row.total_ns).sum();
/// assert_eq!(total_ns, 0, "no thread waits here");
/// ```
pub fn waits() -> &'static Table<WAIT_ROWS> {
    &WAITS
}
