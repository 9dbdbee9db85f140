//! The hook [`Holds`].
//!
//! Each lock has one slot for a timed hold. Upgrades and downgrades continue the hold. Rules:
//!
//! 1. A thread that stores its number in the slot owns the slot until it releases the lock.
//! 2. A shared hold includes the owner's recursive reads, and only the owner may end it, because other threads read at
//!    the same time. Any thread may end an exclusive hold, because guards may be sent to other threads.
//! 3. If another thread released the owner's shared guard, the slot is stale. So an exclusive holder frees it.

use core::panic::Location;
use core::ptr::{from_ref, null_mut};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
use core::time::Duration;

use crate::acquisition::{Lock, Mode, Outcome, Way};
use crate::hook::Hook;
use crate::table::Table;
use crate::thread::this_thread;

/// The most entries of [`holds`], as [`WAIT_ROWS`](crate::WAIT_ROWS) is for waits.
///
/// ```
/// assert!(tiptoe_lock::holds().rows().count() <= tiptoe_lock::HOLD_ROWS);
/// ```
pub const HOLD_ROWS: usize = 1024;

static HOLDS: Table<HOLD_ROWS> = Table::new();

/// A hook that times how long a lock is held, for about one in `EVERY` acquisitions, at random. [`holds`] returns the
/// times.
///
/// ```
/// use tiptoe_lock::{Holds, Mutex, holds};
///
/// let each: Mutex<u32, Holds<1>> = Mutex::new(0);
/// *each.lock() += 1;
///
/// let row = holds().rows().find(|row| row.lock == &raw const each as usize).unwrap();
/// assert_eq!(row.times.total(), 1);
/// ```
#[derive(Debug)]
pub struct Holds<const EVERY: u32 = 64> {
    /// How many acquisitions to skip.
    left: AtomicU32,
    holder: AtomicUsize,
    again: AtomicU32,
    is_shared: AtomicBool,
    since: AtomicU64,
    site: AtomicPtr<Location<'static>>,
}

/// Returns the times of all [`Holds`], by lock and call site.
///
/// ```
/// for row in tiptoe_lock::holds().rows() {
///     println!("{row}");
/// }
/// ```
pub fn holds() -> &'static Table<HOLD_ROWS> {
    &HOLDS
}

impl<const EVERY: u32> Holds<EVERY> {
    /// Draws how many acquisitions to skip, from 0 to twice the mean, `EVERY` - 1.
    fn gap(now: u64) -> u32 {
        let range = u64::from(EVERY.max(1)) * 2 - 1;
        let chance = now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((chance * range) >> 32) as u32
    }
}

// Relaxed unless stated: the lock orders exclusive holders, and a reader takes the slot by an exchange of `holder`.
// Readers may race on `left`, which only shifts the next timed hold.
impl<const EVERY: u32> Hook for Holds<EVERY> {
    const INIT: Self = Holds {
        left: AtomicU32::new(0),
        holder: AtomicUsize::new(0),
        again: AtomicU32::new(0),
        is_shared: AtomicBool::new(false),
        since: AtomicU64::new(0),
        site: AtomicPtr::new(null_mut()),
    };
    const HOLDS: bool = true;

    #[inline]
    fn acquired(&self, lock: &Lock, mode: Mode, _: Way) {
        if mode == Mode::Upgrade {
            return;
        }
        // Relaxed: only this thread stores its number.
        if mode.is_shared() && self.holder.load(Relaxed) == this_thread() {
            self.again.fetch_add(1, Relaxed);
            return;
        }
        let left = self.left.load(Relaxed);
        if left != 0 {
            self.left.store(left - 1, Relaxed);
            return;
        }
        if mode == Mode::Exclusive {
            self.holder.store(0, Relaxed); // rule 3
        }
        // Acquire: pairs with the Release in `released`, so that the previous owner's accesses are done.
        let free = self
            .holder
            .compare_exchange(0, this_thread(), Acquire, Relaxed);
        if free.is_ok() {
            let now = Self::now();
            self.left.store(Self::gap(now), Relaxed);
            self.again.store(0, Relaxed);
            self.is_shared.store(mode.is_shared(), Relaxed);
            self.site.store(from_ref(lock.site).cast_mut(), Relaxed);
            self.since.store(now, Relaxed);
        }
    }

    fn downgraded(&self, _: &Lock, _: Mode, to: Mode) {
        if to.is_shared() && self.holder.load(Relaxed) == this_thread() {
            self.is_shared.store(true, Relaxed);
        }
    }

    #[inline]
    fn released(&self, lock: &Lock, mode: Mode) {
        let holder = self.holder.load(Relaxed);
        let shared = self.is_shared.load(Relaxed);
        if holder == 0 {
            return;
        }
        if mode.is_shared() {
            // Another reader owns the slot, and may still write to it.
            if holder != this_thread() {
                return;
            }
            let again = self.again.load(Relaxed);
            if again != 0 {
                self.again.store(again - 1, Relaxed);
                return;
            }
        }
        // A release in another mode does not end the hold.
        if mode.is_shared() != shared {
            return;
        }
        let ticks = Self::now().saturating_sub(self.since.load(Relaxed));
        let held = Duration::from_nanos(Self::ns(ticks));
        let site = self.site.load(Relaxed);
        // Release: pairs with the Acquire in `acquired`.
        self.holder.store(0, Release);
        // SAFETY: only null or a `&'static Location` is stored there.
        let site = unsafe { site.as_ref() }.unwrap_or(lock.site);
        let mode = match shared {
            true => Mode::Shared,
            false => mode,
        };
        HOLDS.add(&Lock { site, ..*lock }, mode, Outcome::Acquired, held);
    }
}

#[cfg(all(test, feature = "parking_lot"))]
mod tests {
    use super::*;
    use crate::{Mutex, RwLock, TableRow};
    use lock_api::{RwLockUpgradableReadGuard as Upgradable, RwLockWriteGuard as Write};
    use std::boxed::Box;
    use std::vec::Vec;

    /// Leaks a lock, because a later lock at the same address would share its rows.
    fn always<T>(lock: T) -> &'static T {
        Box::leak(Box::new(lock))
    }

    fn rows<T>(lock: &T) -> Vec<TableRow> {
        let address = from_ref(lock).addr();
        holds().rows().filter(|row| row.lock == address).collect()
    }

    fn sum<T>(lock: &T, mode: Mode) -> u64 {
        let rows = rows(lock).into_iter().filter(|row| row.mode == mode);
        rows.map(|row| row.times.total()).sum()
    }

    #[test]
    fn each_hold_is_timed_once() {
        let lock: &RwLock<u32, Holds<1>> = always(RwLock::new(0));
        let first = lock.read();
        let again = lock.read_recursive();
        drop(again);
        drop(first);
        assert_eq!(sum(lock, Mode::Shared), 1, "reading again is within");
        drop(lock.write());
        assert_eq!(sum(lock, Mode::Exclusive), 1);
        drop(lock.upgradable_read());
        assert_eq!(sum(lock, Mode::Upgradable), 1);
        drop(Upgradable::upgrade(lock.upgradable_read()));
        drop(Write::downgrade(lock.write()));
        let all = [Mode::Shared, Mode::Exclusive, Mode::Upgradable].map(|mode| sum(lock, mode));
        assert_eq!(all.iter().sum::<u64>(), 5);
    }

    #[test]
    fn recursive_reads_belong_to_the_upgradable_hold() {
        let lock: &RwLock<u32, Holds<1>> = always(RwLock::new(0));
        for _ in 0..3 {
            let (may_upgrade, again) = (lock.upgradable_read(), lock.read_recursive());
            drop(again);
            drop(may_upgrade);
            let (may_upgrade, again) = (lock.upgradable_read(), lock.read_recursive());
            drop(may_upgrade);
            drop(again);
            drop(lock.read());
        }
        assert_eq!(sum(lock, Mode::Upgradable), 6);
        assert_eq!(sum(lock, Mode::Shared), 3);
    }

    #[test]
    fn another_reader_s_hold_is_its_own() {
        let lock: &RwLock<u32, Holds<1>> = always(RwLock::new(0));
        let first = lock.read();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(lock.read()));
        });
        assert_eq!(sum(lock, Mode::Shared), 0, "the first reader has the slot");
        drop(first);
        assert_eq!(sum(lock, Mode::Shared), 1);
    }

    #[test]
    fn one_in_eight_is_timed_on_average() {
        let lock: &Mutex<u32, Holds<8>> = always(Mutex::new(0));
        for _ in 0..8_000 {
            *lock.lock() += 1;
        }
        let timed = sum(lock, Mode::Exclusive);
        assert!((500..2_000).contains(&timed), "{timed}");
        assert!(
            rows(lock)
                .iter()
                .all(|row| row.site.file().ends_with("holds.rs"))
        );
    }
}
