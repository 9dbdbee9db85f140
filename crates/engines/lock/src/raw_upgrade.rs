//! The lock_api traits of upgradable reader-writer locks.

use lock_api::{
    RawRwLockUpgrade, RawRwLockUpgradeDowngrade, RawRwLockUpgradeFair, RawRwLockUpgradeTimed,
};

use crate::acquisition::Mode;
use crate::class::Class;
use crate::contended::Contended;
use crate::hook::Hook;
use crate::kind::{UpgradableKind, UpgradeKind};

// SAFETY: a thread that holds the wrapper `Contended` holds the raw lock in the same mode.
unsafe impl<R: RawRwLockUpgrade, H: Hook, C: Class> RawRwLockUpgrade for Contended<R, H, C> {
    #[inline]
    #[track_caller]
    fn lock_upgradable(&self) {
        // SAFETY: `take` has a condition only for upgrades.
        unsafe { self.take::<UpgradableKind>(0) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_upgradable(&self) -> bool {
        // SAFETY: this is no upgrade.
        unsafe { self.attempt::<UpgradableKind>() }
    }

    #[inline]
    #[track_caller]
    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller holds the lock upgradable.
        self.release(Mode::Upgradable, |raw| unsafe { raw.unlock_upgradable() });
    }

    #[inline]
    #[track_caller]
    unsafe fn upgrade(&self) {
        // SAFETY: the caller holds the lock upgradable.
        unsafe { self.take::<UpgradeKind>(0) }
    }

    #[inline]
    #[track_caller]
    unsafe fn try_upgrade(&self) -> bool {
        // SAFETY: the caller holds the lock upgradable.
        unsafe { self.attempt::<UpgradeKind>() }
    }
}

// SAFETY: as above.
unsafe impl<R, H, C> RawRwLockUpgradeFair for Contended<R, H, C>
where
    R: RawRwLockUpgradeFair,
    H: Hook,
    C: Class,
{
    #[inline]
    #[track_caller]
    unsafe fn unlock_upgradable_fair(&self) {
        // SAFETY: the caller holds the lock upgradable.
        self.release(Mode::Upgradable, |raw| unsafe {
            raw.unlock_upgradable_fair()
        });
    }

    #[inline]
    #[track_caller]
    unsafe fn bump_upgradable(&self) {
        // SAFETY: the caller holds the lock upgradable, and holds it again afterwards.
        unsafe {
            match self.must_see_bumps() {
                false => self.raw().bump_upgradable(),
                true => {
                    self.unlock_upgradable_fair();
                    self.lock_upgradable();
                }
            }
        }
    }
}

// SAFETY: as above.
unsafe impl<R, H, C> RawRwLockUpgradeDowngrade for Contended<R, H, C>
where
    R: RawRwLockUpgradeDowngrade,
    H: Hook,
    C: Class,
{
    #[inline]
    #[track_caller]
    unsafe fn downgrade_upgradable(&self) {
        let (from, to) = (Mode::Upgradable, Mode::Shared);
        // SAFETY: the caller holds the lock upgradable.
        self.downgrade_to(from, to, |raw| unsafe { raw.downgrade_upgradable() });
    }

    #[inline]
    #[track_caller]
    unsafe fn downgrade_to_upgradable(&self) {
        let (from, to) = (Mode::Exclusive, Mode::Upgradable);
        // SAFETY: the caller holds the lock to write.
        self.downgrade_to(from, to, |raw| unsafe { raw.downgrade_to_upgradable() });
    }
}

// SAFETY: as above.
unsafe impl<R, H, C> RawRwLockUpgradeTimed for Contended<R, H, C>
where
    R: RawRwLockUpgradeTimed,
    H: Hook,
    C: Class,
{
    #[inline]
    #[track_caller]
    fn try_lock_upgradable_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: this is no upgrade; the raw lock returns whether the lock was taken.
        unsafe { self.take_timed::<UpgradableKind>(|raw| raw.try_lock_upgradable_for(timeout)) }
    }

    #[inline]
    #[track_caller]
    fn try_lock_upgradable_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: as above.
        unsafe { self.take_timed::<UpgradableKind>(|raw| raw.try_lock_upgradable_until(timeout)) }
    }

    #[inline]
    #[track_caller]
    unsafe fn try_upgrade_for(&self, timeout: R::Duration) -> bool {
        // SAFETY: the caller holds the lock upgradable; the raw lock returns whether it was upgraded.
        unsafe { self.take_timed::<UpgradeKind>(|raw| raw.try_upgrade_for(timeout)) }
    }

    #[inline]
    #[track_caller]
    unsafe fn try_upgrade_until(&self, timeout: R::Instant) -> bool {
        // SAFETY: as above.
        unsafe { self.take_timed::<UpgradeKind>(|raw| raw.try_upgrade_until(timeout)) }
    }
}
