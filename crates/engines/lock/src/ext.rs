//! Methods that lock_api lacks: for nested locks of one class, and for waits that can be cancelled.

use core::mem::forget;
use core::time::Duration;

use lock_api::{
    Mutex, MutexGuard, RawMutex, RawMutexTimed, RawRwLock, RawRwLockTimed, RawRwLockUpgrade,
    RawRwLockUpgradeTimed, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};

use crate::acquisition::Outcome;
use crate::class::Class;
use crate::contended::Contended;
use crate::hook::Hook;
use crate::kind::{MutexKind, ReadKind, UpgradableKind, UpgradeKind, WriteKind};

/// The interval at which a cancellable wait calls `cancelled`.
///
/// ```
/// assert_eq!(tiptoe_lock::SLICE.as_millis(), 1);
/// ```
pub const SLICE: Duration = Duration::from_millis(1);

fn until(
    attempt: impl FnOnce() -> bool,
    mut cancelled: impl FnMut() -> bool,
    mut slice: impl FnMut(Duration) -> bool,
) -> Outcome {
    if attempt() {
        return Outcome::Acquired;
    }
    loop {
        if cancelled() {
            return Outcome::Cancelled;
        }
        if slice(SLICE) {
            return Outcome::Acquired;
        }
    }
}

/// Methods of a mutex that lock_api lacks.
///
/// ```
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use tiptoe_lock::{Mutex, MutexExt, Waits};
///
/// let stop = AtomicBool::new(false);
/// let jobs: Mutex<Vec<u32>, Waits> = Mutex::new(vec![1]);
/// let held = jobs.lock();
/// std::thread::scope(|scope| {
///     let waits = scope.spawn(|| jobs.lock_killable(|| stop.load(Ordering::Relaxed)).is_none());
///     stop.store(true, Ordering::Relaxed);
///     assert!(waits.join().unwrap(), "it was cancelled");
/// });
/// ```
pub trait MutexExt<R: RawMutex, H: Hook, C: Class, T: ?Sized> {
    /// Locks the mutex at a depth, which the order check treats as a class of its own. So the thread may hold mutexes
    /// of this class at other depths. Without a class the depth is ignored.
    ///
    /// ```
    /// use tiptoe_lock::{Mutex, MutexExt, Waits};
    ///
    /// tiptoe_lock::class! { Account = "account" }
    /// let accounts: [Mutex<u32, Waits, Account>; 2] = [Mutex::new(5), Mutex::new(0)];
    /// // All threads must order the accounts alike.
    /// let (mut from, mut to) = (accounts[0].lock(), accounts[1].lock_nested(1));
    /// (*from, *to) = (*from - 1, *to + 1);
    /// assert_eq!(*to, 1);
    /// ```
    #[track_caller]
    fn lock_nested(&self, depth: u8) -> MutexGuard<'_, Contended<R, H, C>, T>;

    /// Locks the mutex. Calls `cancelled` before each [`SLICE`] of the wait; returns `None` if `cancelled` returns
    /// true.
    ///
    /// ```
    /// use tiptoe_lock::{Mutex, MutexExt, Waits};
    ///
    /// let jobs: Mutex<Vec<u32>, Waits> = Mutex::new(vec![1]);
    /// let held = jobs.lock();
    /// assert!(jobs.lock_killable(|| true).is_none());
    /// ```
    #[track_caller]
    fn lock_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<MutexGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawMutexTimed<Duration = Duration>;
}

impl<R: RawMutex, H: Hook, C: Class, T: ?Sized> MutexExt<R, H, C, T>
    for Mutex<Contended<R, H, C>, T>
{
    #[inline]
    fn lock_nested(&self, depth: u8) -> MutexGuard<'_, Contended<R, H, C>, T> {
        // SAFETY: `take` has a condition only for upgrades; the guard takes over the lock.
        unsafe {
            self.raw().take::<MutexKind>(depth);
            self.make_guard_unchecked()
        }
    }

    #[inline]
    fn lock_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<MutexGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawMutexTimed<Duration = Duration>,
    {
        // SAFETY: as above; `until` returns `Acquired` only if the lock was taken.
        unsafe {
            let wait = |raw: &R| {
                until(
                    || raw.try_lock(),
                    cancelled,
                    |slice| raw.try_lock_for(slice),
                )
            };
            let taken = self.raw().acquire::<MutexKind>(0, wait);
            taken.then(|| self.make_guard_unchecked())
        }
    }
}

/// Methods of a reader-writer lock that lock_api lacks.
///
/// ```
/// use tiptoe_lock::{RwLock, RwLockExt, Waits};
///
/// let routes: RwLock<u32, Waits> = RwLock::new(1);
/// *routes.write_nested(0) += 1;
/// ```
pub trait RwLockExt<R: RawRwLock, H: Hook, C: Class, T: ?Sized> {
    /// Locks to read at a [depth](MutexExt::lock_nested).
    ///
    /// ```
    /// use tiptoe_lock::{RwLock, RwLockExt, Waits};
    ///
    /// tiptoe_lock::class! { Node = "node" }
    /// let [parent, child] = [1, 2].map(RwLock::<u32, Waits, Node>::new);
    /// let (parent, child) = (parent.read(), child.read_nested(1));
    /// assert_eq!(*parent + *child, 3);
    /// ```
    #[track_caller]
    fn read_nested(&self, depth: u8) -> RwLockReadGuard<'_, Contended<R, H, C>, T>;

    /// Locks to write at a [depth](MutexExt::lock_nested).
    ///
    /// ```
    /// use tiptoe_lock::{RwLock, RwLockExt, Waits};
    ///
    /// let child: RwLock<u32, Waits> = RwLock::new(2);
    /// *child.write_nested(1) += 1;
    /// ```
    #[track_caller]
    fn write_nested(&self, depth: u8) -> RwLockWriteGuard<'_, Contended<R, H, C>, T>;

    /// Locks to read upgradably at a [depth](MutexExt::lock_nested).
    ///
    /// ```
    /// use lock_api::RwLockUpgradableReadGuard;
    /// use tiptoe_lock::{RwLock, RwLockExt, Waits};
    ///
    /// let cache: RwLock<u32, Waits> = RwLock::new(0);
    /// *RwLockUpgradableReadGuard::upgrade(cache.upgradable_read_nested(1)) += 1;
    /// ```
    #[track_caller]
    fn upgradable_read_nested(
        &self,
        depth: u8,
    ) -> RwLockUpgradableReadGuard<'_, Contended<R, H, C>, T>
    where
        R: RawRwLockUpgrade;

    /// Locks to read, unless [cancelled](MutexExt::lock_killable).
    ///
    /// ```
    /// use tiptoe_lock::{RwLock, RwLockExt, Waits};
    ///
    /// let routes: RwLock<u32, Waits> = RwLock::new(1);
    /// let writing = routes.write();
    /// assert!(routes.read_killable(|| true).is_none());
    /// drop(writing);
    /// assert!(routes.read_killable(|| true).is_some());
    /// ```
    #[track_caller]
    fn read_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<RwLockReadGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawRwLockTimed<Duration = Duration>;

    /// Locks to write, unless [cancelled](MutexExt::lock_killable).
    ///
    /// ```
    /// use tiptoe_lock::{RwLock, RwLockExt, Waits};
    ///
    /// let routes: RwLock<u32, Waits> = RwLock::new(1);
    /// assert!(routes.write_killable(|| true).is_some());
    /// ```
    #[track_caller]
    fn write_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<RwLockWriteGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawRwLockTimed<Duration = Duration>;

    /// Locks to read upgradably, unless [cancelled](MutexExt::lock_killable).
    ///
    /// ```
    /// use tiptoe_lock::{RwLock, RwLockExt, Waits};
    ///
    /// let cache: RwLock<u32, Waits> = RwLock::new(0);
    /// assert!(cache.upgradable_read_killable(|| true).is_some());
    /// ```
    #[track_caller]
    fn upgradable_read_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<RwLockUpgradableReadGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawRwLockUpgradeTimed<Duration = Duration>;
}

impl<R: RawRwLock, H: Hook, C: Class, T: ?Sized> RwLockExt<R, H, C, T>
    for RwLock<Contended<R, H, C>, T>
{
    #[inline]
    fn read_nested(&self, depth: u8) -> RwLockReadGuard<'_, Contended<R, H, C>, T> {
        // SAFETY: as for the mutex.
        unsafe {
            self.raw().take::<ReadKind>(depth);
            self.make_read_guard_unchecked()
        }
    }

    #[inline]
    fn write_nested(&self, depth: u8) -> RwLockWriteGuard<'_, Contended<R, H, C>, T> {
        // SAFETY: as above.
        unsafe {
            self.raw().take::<WriteKind>(depth);
            self.make_write_guard_unchecked()
        }
    }

    #[inline]
    fn upgradable_read_nested(
        &self,
        depth: u8,
    ) -> RwLockUpgradableReadGuard<'_, Contended<R, H, C>, T>
    where
        R: RawRwLockUpgrade,
    {
        // SAFETY: as above.
        unsafe {
            self.raw().take::<UpgradableKind>(depth);
            self.make_upgradable_guard_unchecked()
        }
    }

    #[inline]
    fn read_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<RwLockReadGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawRwLockTimed<Duration = Duration>,
    {
        // SAFETY: as above.
        unsafe {
            let wait = |raw: &R| {
                until(
                    || raw.try_lock_shared(),
                    cancelled,
                    |slice| raw.try_lock_shared_for(slice),
                )
            };
            let taken = self.raw().acquire::<ReadKind>(0, wait);
            taken.then(|| self.make_read_guard_unchecked())
        }
    }

    #[inline]
    fn write_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<RwLockWriteGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawRwLockTimed<Duration = Duration>,
    {
        // SAFETY: as above.
        unsafe {
            let wait = |raw: &R| {
                until(
                    || raw.try_lock_exclusive(),
                    cancelled,
                    |slice| raw.try_lock_exclusive_for(slice),
                )
            };
            let taken = self.raw().acquire::<WriteKind>(0, wait);
            taken.then(|| self.make_write_guard_unchecked())
        }
    }

    #[inline]
    fn upgradable_read_killable(
        &self,
        cancelled: impl FnMut() -> bool,
    ) -> Option<RwLockUpgradableReadGuard<'_, Contended<R, H, C>, T>>
    where
        R: RawRwLockUpgradeTimed<Duration = Duration>,
    {
        // SAFETY: as above.
        unsafe {
            let wait = |raw: &R| {
                until(
                    || raw.try_lock_upgradable(),
                    cancelled,
                    |slice| raw.try_lock_upgradable_for(slice),
                )
            };
            let taken = self.raw().acquire::<UpgradableKind>(0, wait);
            taken.then(|| self.make_upgradable_guard_unchecked())
        }
    }
}

/// An upgrade that can be cancelled.
///
/// ```
/// use tiptoe_lock::{RwLock, UpgradeExt, Waits};
///
/// let cache: RwLock<u32, Waits> = RwLock::new(0);
/// assert!(UpgradeExt::upgrade_killable(cache.upgradable_read(), || true).is_ok());
/// ```
pub trait UpgradeExt<'a, R: RawRwLockUpgradeTimed, H: Hook, C: Class, T: ?Sized>: Sized {
    /// Upgrades the lock. If the wait is [cancelled](MutexExt::lock_killable), returns the old guard.
    ///
    /// ```
    /// use tiptoe_lock::{RwLock, UpgradeExt, Waits};
    ///
    /// let cache: RwLock<u32, Waits> = RwLock::new(5);
    /// let (reads, may_write) = (cache.read(), cache.upgradable_read());
    /// let still_reads = UpgradeExt::upgrade_killable(may_write, || true).unwrap_err();
    /// assert_eq!(*still_reads + *reads, 10);
    /// ```
    #[track_caller]
    fn upgrade_killable(
        guard: Self,
        cancelled: impl FnMut() -> bool,
    ) -> Result<RwLockWriteGuard<'a, Contended<R, H, C>, T>, Self>
    where
        R: RawRwLockTimed<Duration = Duration>;
}

impl<'a, R: RawRwLockUpgradeTimed, H: Hook, C: Class, T: ?Sized> UpgradeExt<'a, R, H, C, T>
    for RwLockUpgradableReadGuard<'a, Contended<R, H, C>, T>
{
    #[inline]
    fn upgrade_killable(
        guard: Self,
        cancelled: impl FnMut() -> bool,
    ) -> Result<RwLockWriteGuard<'a, Contended<R, H, C>, T>, Self>
    where
        R: RawRwLockTimed<Duration = Duration>,
    {
        let lock = RwLockUpgradableReadGuard::rwlock(&guard);
        // SAFETY: the old guard holds the lock upgradable; the new guard takes over the upgraded lock.
        unsafe {
            let wait = |raw: &R| {
                until(
                    || raw.try_upgrade(),
                    cancelled,
                    |slice| raw.try_upgrade_for(slice),
                )
            };
            match lock.raw().acquire::<UpgradeKind>(0, wait) {
                true => {
                    forget(guard);
                    Ok(lock.make_write_guard_unchecked())
                }
                false => Err(guard),
            }
        }
    }
}
