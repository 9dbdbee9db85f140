//! Adds up times by lock and call site, in static memory, without allocation or lock.
//!
//! Only the thread that claimed an entry adds to it, so that no thread waits for another thread's cache line. Without
//! the feature `std` two threads may have the same number and share entries, so additions must be atomic.
//!
//! | state of an entry | may write its key | may read its key |
//! |---|---|---|
//! | free | no thread | no thread |
//! | claimed | the thread that claimed it | no thread |
//! | ready | no thread | all threads |
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | K: the key is complete | the store of `READY` | each load of the state |

use core::fmt;
use core::mem::MaybeUninit;
use core::panic::Location;
use core::time::Duration;

use tiptoe_event::histogram::{HISTOGRAM_BUCKETS, Histogram, bucket_of};

use crate::acquisition::{Lock, Mode, Outcome};
use crate::primitive::Ordering::{Acquire, Relaxed, Release};
use crate::primitive::{AtomicU64, UnsafeCell};
use crate::thread::this_thread;

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const READY: u64 = 2;

/// How many entries are probed before the table counts as full.
const PROBES: usize = 16;
/// Buckets of a histogram; few under loom, which tracks each word.
const BUCKETS: usize = if cfg!(tiptoe_loom) {
    2
} else {
    HISTOGRAM_BUCKETS
};
const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug)]
struct Key {
    lock: usize,
    name: &'static str,
    site: &'static Location<'static>,
    mode: Mode,
    thread: usize,
}

impl Key {
    #[inline]
    fn of(lock: &Lock, mode: Mode) -> Key {
        Key {
            lock: lock.address,
            name: lock.name,
            site: lock.site,
            mode,
            thread: this_thread(),
        }
    }

    fn is_like(&self, other: &Key) -> bool {
        let [own, other] = [self, other].map(|key| (key.lock, key.name, key.site, key.mode));
        own == other
    }

    #[inline]
    fn is_same(&self, other: &Key) -> bool {
        (self.lock, self.thread, self.mode) == (other.lock, other.thread, other.mode)
            && core::ptr::eq(self.site, other.site)
            && core::ptr::eq(self.name, other.name)
    }
}

/// A thread's times for one key. The fields up to `held_back`, which are used while the lock is held, share a cache
/// line.
#[repr(C, align(64))]
pub(crate) struct Entry {
    state: AtomicU64,
    /// INVARIANT: initialised before the entry becomes ready. Zero until then, so that a static table takes no room in
    /// the program's file.
    key: UnsafeCell<MaybeUninit<Key>>,
    /// The ticks that [`Entry::hold_back`] stored, plus one; 0 if none are stored.
    held_back: AtomicU64,
    total_ns: AtomicU64,
    max_ns: AtomicU64,
    failed: [AtomicU64; 3],
    zero: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

/// How long threads waited for locks, or held them, by lock, mode and call site.
///
/// ```
/// use tiptoe_lock::{Mutex, Table, Waits, waits};
///
/// let lock: Mutex<u32, Waits> = Mutex::new(0);
/// let held = lock.lock();
/// assert!(lock.try_lock_for(std::time::Duration::from_millis(2)).is_none());
///
/// let table: &Table<_> = waits();
/// let row = table.rows().find(|row| row.lock == &raw const lock as usize).unwrap();
/// assert_eq!((row.times.total(), row.timed_out), (1, 1));
/// assert!(row.times.percentile(50.0, row.max_ns) >= 2_000_000);
/// ```
pub struct Table<const N: usize> {
    entries: [Entry; N],
    missed: AtomicU64,
}

/// A row of a [`Table`].
///
/// ```
/// use tiptoe_lock::waits;
///
/// for row in waits().rows() {
///     println!("{row}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableRow {
    /// The lock's address. A later lock at the same address is added to the same rows.
    pub lock: usize,
    /// The name of the lock's class, empty if it has none.
    pub name: &'static str,
    /// The mode in which the lock was taken.
    pub mode: Mode,
    /// The call site.
    pub site: &'static Location<'static>,
    /// The durations of all waits or holds.
    pub times: Histogram,
    /// The sum of all durations.
    pub total_ns: u64,
    /// The longest duration.
    pub max_ns: u64,
    /// Waits that timed out.
    pub timed_out: u64,
    /// Waits that were cancelled.
    pub cancelled: u64,
    /// Waits that panicked.
    pub panicked: u64,
}

#[cfg(feature = "std")]
#[inline]
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Relaxed).wrapping_add(more), Relaxed);
}

#[cfg(not(feature = "std"))]
fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Relaxed);
}

impl Entry {
    const fn key(&self) -> &UnsafeCell<MaybeUninit<Key>> {
        &self.key
    }

    fn owner(&self) -> Option<Key> {
        // Acquire: pairs with the Release in `claim` (edge K).
        if self.state.load(Acquire) != READY {
            return None;
        }
        // SAFETY: the entry is ready, so the key is initialised (INVARIANT of `key`) and not written again.
        Some(self.key().with(|key| unsafe { (*key).assume_init() }))
    }

    fn claim(&self, key: Key) -> bool {
        // Relaxed: the store of `READY` publishes the key, not the claim.
        let claimed = self.state.compare_exchange(FREE, CLAIMED, Relaxed, Relaxed);
        if claimed.is_err() {
            return false;
        }
        // SAFETY: only the claiming thread writes the key; no thread reads it until the entry is ready.
        self.key().with_mut(|own| unsafe { (*own).write(key) });
        // Release: pairs with the Acquire in `owner` (edge K).
        self.state.store(READY, Release);
        true
    }

    /// Only the entry's thread may call this.
    #[inline]
    pub(crate) fn add_time(&self, time: Duration, outcome: Outcome) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.add(ns, outcome);
    }

    /// Stores the ticks of a wait that got the lock. The thread's next wait adds them, because adding them now would
    /// prolong a short critical section. Returns `false` if an earlier wait's ticks are stored.
    #[cfg(all(feature = "std", not(tiptoe_loom)))]
    #[inline]
    pub(crate) fn hold_back(&self, ticks: u64) -> bool {
        let is_free = self.held_back.load(Relaxed) == 0; // Relaxed: only this thread writes it
        if is_free {
            self.held_back.store(ticks.saturating_add(1), Relaxed); // Relaxed: a counter
        }
        is_free
    }

    /// Adds the stored ticks. A concurrent reader may miss them.
    #[cfg(all(feature = "std", not(tiptoe_loom)))]
    #[inline]
    pub(crate) fn add_pending(&self) {
        if let Some(ns) = self.held_back_ns() {
            self.held_back.store(0, Relaxed); // Relaxed: a counter
            self.add(ns, Outcome::Acquired);
        }
    }

    fn held_back_ns(&self) -> Option<u64> {
        let ticks = self.held_back.load(Relaxed).checked_sub(1)?; // Relaxed: a counter
        Some(crate::clock::ns(ticks))
    }

    /// Relaxed throughout: counters order nothing. A reader may see some sums without `ns`.
    #[inline]
    fn add(&self, ns: u64, outcome: Outcome) {
        let count = match ns {
            0 => Some(&self.zero),
            _ => self.counts.get(bucket_of(ns).min(BUCKETS - 1)),
        };
        if let Some(count) = count {
            add(count, 1);
        }
        add(&self.total_ns, ns);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(ns, Relaxed);
        }
        let failed = match outcome {
            Outcome::Acquired => return,
            Outcome::TimedOut => &self.failed[0],
            Outcome::Cancelled => &self.failed[1],
            Outcome::Panicked => &self.failed[2],
        };
        add(failed, 1);
    }

    fn add_to(&self, row: &mut TableRow) {
        let counts: [u64; BUCKETS] = core::array::from_fn(|at| self.counts[at].load(Relaxed));
        row.times.add_counts(self.zero.load(Relaxed), &counts);
        row.total_ns = row.total_ns.wrapping_add(self.total_ns.load(Relaxed));
        row.max_ns = row.max_ns.max(self.max_ns.load(Relaxed));
        if let Some(ns) = self.held_back_ns() {
            row.times.record(ns);
            row.total_ns = row.total_ns.wrapping_add(ns);
            row.max_ns = row.max_ns.max(ns);
        }
        row.timed_out += self.failed[0].load(Relaxed);
        row.cancelled += self.failed[1].load(Relaxed);
        row.panicked += self.failed[2].load(Relaxed);
    }
}

// loom's atomics can only be made at run time, so `new` is not `const` there.
macro_rules! new {
    ($($constant:ident)?) => {
        impl Entry {
            $($constant)? fn new() -> Entry {
                Entry {
                    state: AtomicU64::new(FREE),
                    key: UnsafeCell::new(MaybeUninit::zeroed()),
                    held_back: AtomicU64::new(0),
                    total_ns: AtomicU64::new(0),
                    max_ns: AtomicU64::new(0),
                    failed: [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)],
                    zero: AtomicU64::new(0),
                    counts: many!($($constant)? AtomicU64::new(0)),
                }
            }
        }

        impl<const N: usize> Table<N> {
            /// Returns a table for at most `N` entries, which take 2.8 KB each once used.
            ///
            /// ```
            /// use tiptoe_lock::Table;
            ///
            /// static TIMES: Table<64> = Table::new();
            /// assert_eq!(TIMES.rows().count(), 0);
            /// ```
            #[expect(clippy::new_without_default, reason = "it goes into statics")]
            pub $($constant)? fn new() -> Table<N> {
                Table {
                    entries: many!($($constant)? Entry::new()),
                    missed: AtomicU64::new(0),
                }
            }
        }
    };
}

macro_rules! many {
    (const $one:expr) => {
        [const { $one }; _]
    };
    ($one:expr) => {
        core::array::from_fn(|_| $one)
    };
}

#[cfg(not(tiptoe_loom))]
new!(const);
#[cfg(tiptoe_loom)]
new!();

// SAFETY: a key is written once, by the claiming thread, and read only after that (edge K).
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    /// Adds a duration.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tiptoe_lock::{Hook, Lock, Mode, Outcome, Table};
    ///
    /// static TIMES: Table<64> = Table::new();
    ///
    /// struct Own;
    /// impl Hook for Own {
    ///     const INIT: Self = Own;
    ///     const WAITS: bool = true;
    ///
    ///     fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
    ///         TIMES.add(lock, mode, outcome, waited);
    ///     }
    /// }
    /// ```
    pub fn add(&self, lock: &Lock, mode: Mode, outcome: Outcome, time: Duration) {
        match self.find(lock, mode) {
            Some(entry) => entry.add_time(time, outcome),
            None => {
                self.missed.fetch_add(1, Relaxed); // Relaxed: a counter
            }
        }
    }

    /// Returns the calling thread's entry. Claims one if the thread has none and the table has room.
    #[inline]
    pub(crate) fn find(&self, lock: &Lock, mode: Mode) -> Option<&Entry> {
        self.entry(Key::of(lock, mode))
    }

    /// Returns how many durations were lost because the table was full.
    ///
    /// ```
    /// assert_eq!(tiptoe_lock::waits().missed(), 0);
    /// ```
    pub fn missed(&self) -> u64 {
        self.missed.load(Relaxed) // Relaxed: a counter
    }

    fn entry(&self, key: Key) -> Option<&Entry> {
        let site = core::ptr::from_ref(key.site).addr() as u64;
        // Multiplied after each part, because the numbers of threads with small stacks differ in few bits.
        let hash = (key.lock as u64).wrapping_mul(HASH) ^ key.thread as u64;
        let hash = hash.wrapping_mul(HASH) ^ site.rotate_left(20) ^ key.mode as u64;
        let hash = hash.wrapping_mul(HASH);
        // loom's runs must be reproducible, and addresses are not.
        let start = if cfg!(tiptoe_loom) {
            0
        } else {
            (hash >> 32) as usize
        };
        for probe in 0..PROBES.min(N) {
            let entry = &self.entries[(start + probe) % N];
            if entry.claim_or_own(key) {
                return Some(entry);
            }
        }
        None
    }

    /// Returns a row for each lock, mode and call site. A duration being added may be missing.
    ///
    /// ```
    /// let mut rows: Vec<_> = tiptoe_lock::waits().rows().collect();
    /// rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    /// ```
    pub fn rows(&self) -> impl Iterator<Item = TableRow> + '_ {
        let owner = |at: usize| self.entries.get(at).and_then(Entry::owner);
        (0..N).filter_map(move |at| {
            let key = owner(at)?;
            let is_like = |other: usize| owner(other).is_some_and(|other| other.is_like(&key));
            if (0..at).any(is_like) {
                return None;
            }
            let mut row = TableRow::new(key);
            for other in at..N {
                if is_like(other) {
                    self.entries[other].add_to(&mut row);
                }
            }
            Some(row)
        })
    }
}

impl Entry {
    fn claim_or_own(&self, key: Key) -> bool {
        // Acquire: pairs with the Release in `claim` (edge K).
        match self.state.load(Acquire) {
            FREE => self.claim(key),
            // SAFETY: as in `owner`.
            READY => self
                .key()
                .with(|own| unsafe { (*own).assume_init() })
                .is_same(&key),
            _ => false,
        }
    }
}

impl TableRow {
    fn new(key: Key) -> TableRow {
        TableRow {
            lock: key.lock,
            name: key.name,
            mode: key.mode,
            site: key.site,
            times: Histogram::default(),
            total_ns: 0,
            max_ns: 0,
            timed_out: 0,
            cancelled: 0,
            panicked: 0,
        }
    }
}

impl fmt::Display for TableRow {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.name {
            "" => write!(f, "{:#x}", self.lock)?,
            name => write!(f, "{name}")?,
        }
        let percentile = |percent| self.times.percentile(percent, self.max_ns);
        write!(
            f,
            " {} at {}: {} times, {} ns, p50 {}, p99 {}, max {}",
            self.mode.word(),
            self.site,
            self.times.total(),
            self.total_ns,
            percentile(50.0),
            percentile(99.0),
            self.max_ns,
        )?;
        let failed = [
            (self.timed_out, Outcome::TimedOut),
            (self.cancelled, Outcome::Cancelled),
            (self.panicked, Outcome::Panicked),
        ];
        let mut failed = failed.into_iter().filter(|(count, _)| *count != 0);
        failed.try_for_each(|(count, outcome)| write!(f, ", {count} {}", outcome.word()))
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;

    /// Threads with small stacks have numbers as close as these.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a large table")]
    fn threads_next_to_each_other_have_room() {
        static TABLE: Table<4096> = Table::new();
        for bytes in [0x9000, 0x11000, 0x41000, 0x101000] {
            let key = |at: usize| Key {
                lock: 0x5555_0000_1000 + bytes,
                name: "",
                site: Location::caller(),
                mode: Mode::Exclusive,
                thread: 0x7f00_1234_5678 + at * bytes,
            };
            assert_eq!((0..300).find(|at| TABLE.entry(key(*at)).is_none()), None);
        }
    }
}
