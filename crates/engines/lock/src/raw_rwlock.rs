//! The lock_api traits of a reader-writer lock, except upgrades.

use lock_api::{
    RawRwLock, RawRwLockDowngrade, RawRwLockFair, RawRwLockRecursive, RawRwLockRecursiveTimed,
    RawRwLockTimed,
};

use crate::acquisition::Mode;
use crate::class::Class;
use crate::contended::Contended;
use crate::hook::Hook;
use crate::kind::{ReadAgainKind, ReadKind, WriteKind};

// SAFETY: a thread that holds the wrapper `Contended` holds the raw lock in the same mode.
unsafe impl<R: RawRwLock, H: Hook, C: Class> RawRwLock for Contended<R, H, C> {
    const INIT: Self = Contended::new(R::INIT);

    type GuardMarker = R::GuardMarker;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        // SAFETY: `take` has a condition only for upgrades.
        unsafe { self.take::<ReadKind>(0) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        // SAFETY: this is no upgrade.
        unsafe { self.attempt::<ReadKind>() }
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock to read.
        self.release(Mode::Shared, |raw| unsafe { raw.unlock_shared() });
    }

    #[inline]
    #[track_caller]
    fn lock_exclusive(&self) {
        // SAFETY: this is no upgrade.
        unsafe { self.take::<WriteKind>(0) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        // SAFETY: this is no upgrade.
        unsafe { self.attempt::<WriteKind>() }
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock to write.
        self.release(Mode::Exclusive, |raw| unsafe { raw.unlock_exclusive() });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.raw().is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.raw().is_locked_exclusive()
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockFair, H: Hook, C: Class> RawRwLockFair for Contended<R, H, C> {
    #[inline]
    #[track_caller]
    unsafe fn unlock_shared_fair(&self) {
        // SAFETY: the caller holds the lock to read.
        self.release(Mode::Shared, |raw| unsafe { raw.unlock_shared_fair() });
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: the caller holds the lock to write.
        self.release(Mode::Exclusive, |raw| unsafe {
            raw.unlock_exclusive_fair()
        });
    }

    #[inline]
    #[track_caller]
    unsafe fn bump_shared(&self) {
        // SAFETY: the caller holds the lock to read, and holds it again afterwards.
        unsafe {
            match self.must_see_bumps() {
                false => self.raw().bump_shared(),
                true => {
                    self.unlock_shared_fair();
                    self.lock_shared();
                }
            }
        }
    }

    #[inline]
    #[track_caller]
    unsafe fn bump_exclusive(&self) {
        // SAFETY: the caller holds the lock to write, and holds it again afterwards.
        unsafe {
            match self.must_see_bumps() {
                false => self.raw().bump_exclusive(),
                true => {
                    self.unlock_exclusive_fair();
                    self.lock_exclusive();
                }
            }
        }
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockDowngrade, H: Hook, C: Class> RawRwLockDowngrade for Contended<R, H, C> {
    #[inline]
    #[track_caller]
    unsafe fn downgrade(&self) {
        let (from, to) = (Mode::Exclusive, Mode::Shared);
        // SAFETY: the caller holds the lock to write.
        self.downgrade_to(from, to, |raw| unsafe { raw.downgrade() });
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockTimed, H: Hook, C: Class> RawRwLockTimed for Contended<R, H, C> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    #[inline]
    #[track_caller]
    fn try_lock_shared_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: this is no upgrade; the raw lock returns whether the lock was taken.
        unsafe { self.take_timed::<ReadKind>(|raw| raw.try_lock_shared_for(timeout)) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: as above.
        unsafe { self.take_timed::<ReadKind>(|raw| raw.try_lock_shared_until(timeout)) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: as above.
        unsafe { self.take_timed::<WriteKind>(|raw| raw.try_lock_exclusive_for(timeout)) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: as above.
        unsafe { self.take_timed::<WriteKind>(|raw| raw.try_lock_exclusive_until(timeout)) }
    }
}

// SAFETY: as above.
unsafe impl<R: RawRwLockRecursive, H: Hook, C: Class> RawRwLockRecursive for Contended<R, H, C> {
    #[inline]
    #[track_caller]
    fn lock_shared_recursive(&self) {
        // SAFETY: this is no upgrade.
        unsafe { self.take::<ReadAgainKind>(0) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared_recursive(&self) -> bool {
        // SAFETY: this is no upgrade.
        unsafe { self.attempt::<ReadAgainKind>() }
    }
}

// SAFETY: as above.
unsafe impl<R, H, C> RawRwLockRecursiveTimed for Contended<R, H, C>
where
    R: RawRwLockRecursiveTimed,
    H: Hook,
    C: Class,
{
    #[inline]
    #[track_caller]
    fn try_lock_shared_recursive_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: this is no upgrade; the raw lock returns whether the lock was taken.
        unsafe {
            self.take_timed::<ReadAgainKind>(|raw| raw.try_lock_shared_recursive_for(timeout))
        }
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared_recursive_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: as above.
        unsafe {
            self.take_timed::<ReadAgainKind>(|raw| raw.try_lock_shared_recursive_until(timeout))
        }
    }
}
