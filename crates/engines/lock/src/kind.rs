//! The ways to take a raw lock, as types.

use lock_api::{RawMutex, RawRwLock, RawRwLockRecursive, RawRwLockUpgrade};
use tiptoe_port::mode;

use crate::acquisition::Mode;

pub(crate) trait Kind<R> {
    const MODE: Mode;
    const PORT_MODE: u64;

    /// Takes the lock if this needs no wait.
    ///
    /// # Safety
    ///
    /// For an upgrade the caller must hold the lock upgradable.
    unsafe fn attempt(raw: &R) -> bool;

    /// # Safety
    ///
    /// As for [`Kind::attempt`].
    unsafe fn wait(raw: &R);
}

pub(crate) struct MutexKind;
pub(crate) struct WriteKind;
pub(crate) struct ReadKind;
pub(crate) struct ReadAgainKind;
pub(crate) struct UpgradableKind;
pub(crate) struct UpgradeKind;

macro_rules! kind {
    ($kind:ident, $raw:ident, $mode:ident, $port:ident, $attempt:ident, $wait:ident) => {
        impl<R: $raw> Kind<R> for $kind {
            const MODE: Mode = Mode::$mode;
            const PORT_MODE: u64 = mode::$port;

            #[inline]
            unsafe fn attempt(raw: &R) -> bool {
                raw.$attempt()
            }

            #[inline]
            unsafe fn wait(raw: &R) {
                raw.$wait();
            }
        }
    };
}

kind!(MutexKind, RawMutex, Exclusive, MUTEX, try_lock, lock);
kind!(
    WriteKind,
    RawRwLock,
    Exclusive,
    WRITE,
    try_lock_exclusive,
    lock_exclusive
);
kind!(
    ReadKind,
    RawRwLock,
    Shared,
    READ,
    try_lock_shared,
    lock_shared
);
kind!(
    ReadAgainKind,
    RawRwLockRecursive,
    SharedRecursive,
    READ,
    try_lock_shared_recursive,
    lock_shared_recursive
);
kind!(
    UpgradableKind,
    RawRwLockUpgrade,
    Upgradable,
    UPGRADABLE,
    try_lock_upgradable,
    lock_upgradable
);

impl<R: RawRwLockUpgrade> Kind<R> for UpgradeKind {
    const MODE: Mode = Mode::Upgrade;
    const PORT_MODE: u64 = mode::UPGRADE;

    #[inline]
    unsafe fn attempt(raw: &R) -> bool {
        // SAFETY: the caller holds the lock upgradable.
        unsafe { raw.try_upgrade() }
    }

    #[inline]
    unsafe fn wait(raw: &R) {
        // SAFETY: as above.
        unsafe { raw.upgrade() }
    }
}
