//! The lock_api traits of a mutex.

use lock_api::{RawMutex, RawMutexFair, RawMutexTimed};

use crate::acquisition::Mode;
use crate::class::Class;
use crate::contended::Contended;
use crate::hook::Hook;
use crate::kind::MutexKind;

// SAFETY: a thread that holds the wrapper `Contended` holds the raw mutex, which excludes other threads.
unsafe impl<R: RawMutex, H: Hook, C: Class> RawMutex for Contended<R, H, C> {
    const INIT: Self = Contended::new(R::INIT);

    type GuardMarker = R::GuardMarker;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        // SAFETY: `take` has a condition only for upgrades.
        unsafe { self.take::<MutexKind>(0) }
    }

    #[inline]
    #[track_caller]
    fn try_lock(&self) -> bool {
        // SAFETY: this is no upgrade.
        unsafe { self.attempt::<MutexKind>() }
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        self.release(Mode::Exclusive, |raw| unsafe { raw.unlock() });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.raw().is_locked()
    }
}

// SAFETY: as above.
unsafe impl<R: RawMutexFair, H: Hook, C: Class> RawMutexFair for Contended<R, H, C> {
    #[inline]
    #[track_caller]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller holds the lock.
        self.release(Mode::Exclusive, |raw| unsafe { raw.unlock_fair() });
    }

    #[inline]
    #[track_caller]
    unsafe fn bump(&self) {
        // SAFETY: the caller holds the lock, and holds it again afterwards.
        unsafe {
            match self.must_see_bumps() {
                false => self.raw().bump(),
                true => {
                    self.unlock_fair();
                    self.lock();
                }
            }
        }
    }
}

// SAFETY: as above.
unsafe impl<R: RawMutexTimed, H: Hook, C: Class> RawMutexTimed for Contended<R, H, C> {
    type Duration = R::Duration;
    type Instant = R::Instant;

    #[inline]
    #[track_caller]
    fn try_lock_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: this is no upgrade; the raw lock returns whether the lock was taken.
        unsafe { self.take_timed::<MutexKind>(|raw| raw.try_lock_for(timeout)) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: as above.
        unsafe { self.take_timed::<MutexKind>(|raw| raw.try_lock_until(timeout)) }
    }
}
