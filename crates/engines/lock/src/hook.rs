//! The events of a lock, and the hook that receives them. Rules:
//!
//! 1. Each begin of a wait has exactly one end, in the same thread, even if the wait panics.
//! 2. [`Hook::acquired`], [`Hook::downgraded`], [`Hook::released`], and [`Hook::contention_end`] with
//!    [`Outcome::Acquired`] run while the thread holds the lock.
//! 3. A hook's panic must not unwind into lock_api's guards, which assume that raw locks do not panic.
//! 4. Events that a hook does not enable are not compiled in.

use core::mem::{ManuallyDrop, forget};
use core::time::Duration;

use crate::acquisition::{Lock, Mode, Outcome, Way};

/// Receives a lock's events. Each lock contains a hook of its own, which may have data.
///
/// A hook must not take a lock that has this hook, because it would recurse or deadlock.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
/// use tiptoe_lock::{Hook, Lock, Mode, Mutex, Outcome};
///
/// static WAITED_NS: AtomicU64 = AtomicU64::new(0);
///
/// struct Sum;
/// impl Hook for Sum {
///     const INIT: Self = Sum;
///     const WAITS: bool = true;
///
///     fn contention_end(&self, _: &Lock, _: Mode, _: Outcome, waited: Duration) {
///         WAITED_NS.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
///     }
/// }
///
/// let total: Mutex<u32, Sum> = Mutex::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| *total.lock() += 1);
///     }
/// });
/// assert_eq!(*total.lock(), 2);
/// ```
pub trait Hook: Sized {
    /// A new lock's hook.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Nothing};
    ///
    /// assert_eq!(<Nothing as Hook>::INIT, Nothing);
    /// ```
    const INIT: Self;

    /// Enables [`Hook::contention_begin`] and [`Hook::contention_end`]. Before a wait, the lock is tried.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Nothing, Waits};
    ///
    /// const { assert!(Waits::WAITS && !Nothing::WAITS) };
    /// ```
    const WAITS: bool = false;

    /// Enables all other events, which occur with and without a wait.
    ///
    /// ```
    /// use tiptoe_lock::{Holds, Hook, Waits};
    ///
    /// const { assert!(<Holds>::HOLDS && !Waits::HOLDS) };
    /// ```
    const HOLDS: bool = false;

    #[doc(hidden)]
    const CHECKS_ORDER: bool = false;

    /// Returns the time in ticks. The default returns 0 without the feature `std`.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Waits};
    ///
    /// let begin = Waits::now();
    /// assert!(Waits::ns(Waits::now() - begin) < 1_000_000_000);
    /// ```
    #[inline]
    fn now() -> u64 {
        crate::clock::now()
    }

    /// Converts ticks to nanoseconds.
    ///
    /// ```
    /// use tiptoe_lock::Hook;
    ///
    /// struct Microseconds;
    /// impl Hook for Microseconds {
    ///     const INIT: Self = Microseconds;
    ///     fn now() -> u64 {
    ///         7
    ///     }
    ///     fn ns(ticks: u64) -> u64 {
    ///         1_000 * ticks
    ///     }
    /// }
    /// assert_eq!(Microseconds::ns(Microseconds::now()), 7_000);
    /// ```
    #[inline]
    fn ns(ticks: u64) -> u64 {
        crate::clock::ns(ticks)
    }

    /// Called when a thread is about to wait.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Lock, Mode};
    ///
    /// struct Say;
    /// impl Hook for Say {
    ///     const INIT: Self = Say;
    ///     const WAITS: bool = true;
    ///     fn contention_begin(&self, lock: &Lock, mode: Mode) {
    ///         println!("waits for {:#x} ({}) at {}", lock.address, mode.word(), lock.site);
    ///     }
    /// }
    /// ```
    fn contention_begin(&self, lock: &Lock, mode: Mode) {
        let _ = (lock, mode);
    }

    /// Called when a wait has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tiptoe_lock::{Hook, Lock, Mode, Outcome};
    ///
    /// struct Say;
    /// impl Hook for Say {
    ///     const INIT: Self = Say;
    ///     const WAITS: bool = true;
    ///     fn contention_end(&self, _: &Lock, _: Mode, outcome: Outcome, waited: Duration) {
    ///         println!("{} after {waited:?}", outcome.word());
    ///     }
    /// }
    /// ```
    fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
        let _ = (lock, mode, outcome, waited);
    }

    /// Called when a wait has ended. The default calls [`Hook::contention_end`]. The duration is in ticks, because
    /// converting it would prolong the critical section.
    #[doc(hidden)]
    #[inline]
    fn contention_over(&self, lock: &Lock, mode: Mode, outcome: Outcome, ticks: u64) {
        let waited = Duration::from_nanos(Self::ns(ticks));
        self.contention_end(lock, mode, outcome, waited);
    }

    /// Called by methods that may wait, before they try the lock.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Lock, Mode};
    ///
    /// struct NoReaders;
    /// impl Hook for NoReaders {
    ///     const INIT: Self = NoReaders;
    ///     const HOLDS: bool = true;
    ///     fn acquiring(&self, lock: &Lock, mode: Mode) {
    ///         assert!(!mode.is_shared(), "{}", lock.site);
    ///     }
    /// }
    /// ```
    fn acquiring(&self, lock: &Lock, mode: Mode) {
        let _ = (lock, mode);
    }

    /// Called after the lock was taken or upgraded. After an upgrade the lock is held exclusively.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tiptoe_lock::{Hook, Lock, Mode, Way};
    ///
    /// struct Count(AtomicU64);
    /// impl Hook for Count {
    ///     const INIT: Self = Count(AtomicU64::new(0));
    ///     const HOLDS: bool = true;
    ///     fn acquired(&self, _: &Lock, _: Mode, _: Way) {
    ///         self.0.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// }
    /// ```
    fn acquired(&self, lock: &Lock, mode: Mode, way: Way) {
        let _ = (lock, mode, way);
    }

    /// Called when a held lock's mode was weakened.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Lock, Mode};
    ///
    /// struct Say;
    /// impl Hook for Say {
    ///     const INIT: Self = Say;
    ///     const HOLDS: bool = true;
    ///     fn downgraded(&self, _: &Lock, from: Mode, to: Mode) {
    ///         println!("{} to {}", from.word(), to.word());
    ///     }
    /// }
    /// ```
    fn downgraded(&self, lock: &Lock, from: Mode, to: Mode) {
        let _ = (lock, from, to);
    }

    /// Called before a release. For recursive readers, `mode` is [`Mode::Shared`].
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Lock, Mode};
    ///
    /// struct Say;
    /// impl Hook for Say {
    ///     const INIT: Self = Say;
    ///     const HOLDS: bool = true;
    ///     fn released(&self, lock: &Lock, _: Mode) {
    ///         println!("{:#x} is free", lock.address);
    ///     }
    /// }
    /// ```
    fn released(&self, lock: &Lock, mode: Mode) {
        let _ = (lock, mode);
    }
}

/// No hook. The lock has the bare lock's instructions.
///
/// ```
/// use tiptoe_lock::{Mutex, Nothing};
///
/// let bare: Mutex<u32, Nothing> = Mutex::new(1);
/// assert_eq!(*bare.lock(), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nothing;

impl Hook for Nothing {
    const INIT: Self = Nothing;
}

pub(crate) struct OnDrop<F: FnOnce()>(ManuallyDrop<F>);

impl<F: FnOnce()> OnDrop<F> {
    #[inline]
    pub(crate) fn new(last: F) -> Self {
        OnDrop(ManuallyDrop::new(last))
    }

    #[inline]
    pub(crate) fn forget(self) {
        forget(self);
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: only this drop, which runs once, takes the closure.
        let last = unsafe { ManuallyDrop::take(&mut self.0) };
        last();
    }
}

/// Calls a hook, and catches its panics.
#[cfg(feature = "std")]
#[inline]
pub(crate) fn call(hook: impl FnOnce()) {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    if let Err(payload) = catch_unwind(AssertUnwindSafe(hook)) {
        // The payload is leaked, because its destructor could panic again.
        forget(payload);
    }
}

/// Calls a hook. If the hook panics, `last` panics during the unwinding, which ends the program.
#[cfg(not(feature = "std"))]
#[inline]
pub(crate) fn call(hook: impl FnOnce()) {
    let last = OnDrop::new(|| panic!("a lock's hook panicked"));
    hook();
    forget(last);
}

/// Calls both hooks: first `A`, but at the end of a wait and at a release first `B`.
///
/// ```
/// use tiptoe_lock::{Hook, Holds, Mutex, Waits};
///
/// type Both = (Waits, Holds<64>);
/// const { assert!(Both::WAITS && Both::HOLDS) };
/// let queue: Mutex<Vec<u8>, Both> = Mutex::new(Vec::new());
/// queue.lock().push(1);
/// ```
impl<A: Hook, B: Hook> Hook for (A, B) {
    const INIT: Self = (A::INIT, B::INIT);
    const WAITS: bool = A::WAITS || B::WAITS;
    const HOLDS: bool = A::HOLDS || B::HOLDS;
    const CHECKS_ORDER: bool = A::CHECKS_ORDER || B::CHECKS_ORDER;

    #[inline]
    fn now() -> u64 {
        A::now()
    }

    #[inline]
    fn ns(ticks: u64) -> u64 {
        A::ns(ticks)
    }

    #[inline]
    fn contention_begin(&self, lock: &Lock, mode: Mode) {
        if A::WAITS {
            call(|| self.0.contention_begin(lock, mode));
        }
        if B::WAITS {
            call(|| self.1.contention_begin(lock, mode));
        }
    }

    #[inline]
    fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
        if B::WAITS {
            call(|| self.1.contention_end(lock, mode, outcome, waited));
        }
        if A::WAITS {
            call(|| self.0.contention_end(lock, mode, outcome, waited));
        }
    }

    #[inline]
    fn acquiring(&self, lock: &Lock, mode: Mode) {
        if A::HOLDS {
            call(|| self.0.acquiring(lock, mode));
        }
        if B::HOLDS {
            call(|| self.1.acquiring(lock, mode));
        }
    }

    #[inline]
    fn acquired(&self, lock: &Lock, mode: Mode, way: Way) {
        if A::HOLDS {
            call(|| self.0.acquired(lock, mode, way));
        }
        if B::HOLDS {
            call(|| self.1.acquired(lock, mode, way));
        }
    }

    #[inline]
    fn downgraded(&self, lock: &Lock, from: Mode, to: Mode) {
        if A::HOLDS {
            call(|| self.0.downgraded(lock, from, to));
        }
        if B::HOLDS {
            call(|| self.1.downgraded(lock, from, to));
        }
    }

    #[inline]
    fn released(&self, lock: &Lock, mode: Mode) {
        if B::HOLDS {
            call(|| self.1.released(lock, mode));
        }
        if A::HOLDS {
            call(|| self.0.released(lock, mode));
        }
    }
}
