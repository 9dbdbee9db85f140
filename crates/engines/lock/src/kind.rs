//! The ways to take a raw lock, as types: so that what each does is known where it is compiled.

use lock_api::{RawMutex, RawRwLock, RawRwLockRecursive, RawRwLockUpgrade};
use tiptoe_port::mode;

use crate::told::Mode;

/// One way to take a lock.
pub(crate) trait Kind<R> {
    /// How hooks are told of it.
    const MODE: Mode;
    /// How an agent is.
    const PORT_MODE: u64;

    /// Takes it if that can be done at once.
    ///
    /// # Safety
    ///
    /// For an upgrade the caller holds the lock upgradable.
    unsafe fn attempt(raw: &R) -> bool;

    /// Waits for it.
    ///
    /// # Safety
    ///
    /// As for [`Kind::attempt`].
    unsafe fn wait(raw: &R);
}

/// A mutex.
pub(crate) struct Whole;
/// A reader-writer lock, to write.
pub(crate) struct Write;
/// To read.
pub(crate) struct Read;
/// To read, maybe once more.
pub(crate) struct ReadAgain;
/// To read, and maybe to write.
pub(crate) struct Upgradable;
/// From the former to writing.
pub(crate) struct Upgrade;

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

kind!(Whole, RawMutex, Exclusive, MUTEX, try_lock, lock);
kind!(
    Write,
    RawRwLock,
    Exclusive,
    WRITE,
    try_lock_exclusive,
    lock_exclusive
);
kind!(Read, RawRwLock, Shared, READ, try_lock_shared, lock_shared);
kind!(
    ReadAgain,
    RawRwLockRecursive,
    SharedRecursive,
    READ,
    try_lock_shared_recursive,
    lock_shared_recursive
);
kind!(
    Upgradable,
    RawRwLockUpgrade,
    Upgradable,
    UPGRADABLE,
    try_lock_upgradable,
    lock_upgradable
);

impl<R: RawRwLockUpgrade> Kind<R> for Upgrade {
    const MODE: Mode = Mode::Upgrade;
    const PORT_MODE: u64 = mode::UPGRADE;

    #[inline]
    unsafe fn attempt(raw: &R) -> bool {
        // SAFETY: the caller holds it upgradable.
        unsafe { raw.try_upgrade() }
    }

    #[inline]
    unsafe fn wait(raw: &R) {
        // SAFETY: as above.
        unsafe { raw.upgrade() }
    }
}
