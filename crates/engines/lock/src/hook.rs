//! What a lock tells, and to whom.
//!
//! Rules:
//!
//! 1. A begin is followed by exactly one end, in the same thread: when the lock is taken, the wait
//!    is given up or called off, or something panicked meanwhile.
//! 2. An end that says [`Outcome::Acquired`] runs with the lock held, as [`Hook::acquired`],
//!    [`Hook::downgraded`] and [`Hook::released`] do.
//! 3. A panic in a hook ends there, once its message is printed: lock_api's guards count on locks
//!    that do not unwind. Without the feature `std` it ends the program.
//! 4. What a hook does not say that it wants is not compiled in.

use core::mem::{ManuallyDrop, forget};
use core::time::Duration;

use crate::told::{Lock, Mode, Outcome, Way};

/// Who is told of a lock's waits. It lies in the lock, so it may keep something there.
///
/// A hook takes no lock that it watches itself.
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
    /// What a new lock keeps for its hook.
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use tiptoe_lock::{Hook, Mutex};
    ///
    /// struct Times(AtomicU64);
    /// impl Hook for Times {
    ///     const INIT: Self = Times(AtomicU64::new(0));
    /// }
    /// let _lock: Mutex<u32, Times> = Mutex::new(1);
    /// ```
    const INIT: Self;

    /// Whether [`contention_begin`](Hook::contention_begin) and
    /// [`contention_end`](Hook::contention_end) are wanted: a lock is tried first then.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Nothing, Waits};
    ///
    /// const { assert!(Waits::WAITS && !Nothing::WAITS) };
    /// ```
    const WAITS: bool = false;

    /// Whether each acquisition is wanted, contended or not.
    ///
    /// ```
    /// use tiptoe_lock::{Holds, Hook, Waits};
    ///
    /// const { assert!(<Holds>::HOLDS && !Waits::HOLDS) };
    /// ```
    const HOLDS: bool = false;

    #[doc(hidden)]
    const CHECKS_ORDER: bool = false;

    /// The time by which waits are measured, in ticks. Without the feature `std` there is no clock
    /// but a hook's own: all waits take 0.
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

    /// So many ticks in nanoseconds.
    ///
    /// ```
    /// use tiptoe_lock::Hook;
    ///
    /// /// Has a clock of its own, that counts microseconds.
    /// struct Slow;
    /// impl Hook for Slow {
    ///     const INIT: Self = Slow;
    ///     fn now() -> u64 {
    ///         7
    ///     }
    ///     fn ns(ticks: u64) -> u64 {
    ///         1_000 * ticks
    ///     }
    /// }
    /// assert_eq!(Slow::ns(Slow::now()), 7_000);
    /// ```
    #[inline]
    fn ns(ticks: u64) -> u64 {
        crate::clock::ns(ticks)
    }

    /// A thread is about to wait.
    ///
    /// ```
    /// use tiptoe_lock::{Hook, Lock, Mode, Mutex};
    ///
    /// struct Say;
    /// impl Hook for Say {
    ///     const INIT: Self = Say;
    ///     const WAITS: bool = true;
    ///     fn contention_begin(&self, lock: &Lock, mode: Mode) {
    ///         println!("waits for {:#x} ({}) at {}", lock.address, mode.word(), lock.site);
    ///     }
    /// }
    /// let lock: Mutex<u32, Say> = Mutex::new(1);
    /// let held = lock.lock();
    /// assert!(lock.try_lock_for(std::time::Duration::ZERO).is_none()); // said
    /// ```
    fn contention_begin(&self, lock: &Lock, mode: Mode) {
        let _ = (lock, mode);
    }

    /// The wait is over.
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

    /// The same in ticks: who can do with these has the lock sooner.
    #[doc(hidden)]
    #[inline]
    fn contention_over(&self, lock: &Lock, mode: Mode, outcome: Outcome, ticks: u64) {
        let waited = Duration::from_nanos(Self::ns(ticks));
        self.contention_end(lock, mode, outcome, waited);
    }

    /// Somebody asks for a lock and would wait for it: told before it is tried.
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

    /// Somebody has the lock now. After an upgrade it is held exclusively.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// use tiptoe_lock::{Hook, Lock, Mode, Mutex, Way};
    ///
    /// struct Count(AtomicU64);
    /// impl Hook for Count {
    ///     const INIT: Self = Count(AtomicU64::new(0));
    ///     const HOLDS: bool = true;
    ///     fn acquired(&self, _: &Lock, _: Mode, _: Way) {
    ///         self.0.fetch_add(1, Ordering::Relaxed);
    ///     }
    /// }
    /// let lock: Mutex<u32, Count> = Mutex::new(1);
    /// drop(lock.lock());
    /// // SAFETY: nothing is locked or unlocked.
    /// let count = unsafe { lock.raw() }.hook();
    /// assert_eq!(count.0.load(Ordering::Relaxed), 1);
    /// ```
    fn acquired(&self, lock: &Lock, mode: Mode, way: Way) {
        let _ = (lock, mode, way);
    }

    /// A lock that is held is held in another mode from now on, a lesser one.
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

    /// Somebody is about to give back a lock, held in this mode; of a reader always
    /// [`Mode::Shared`].
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

/// No hook: the lock is the bare one, by the instruction.
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

/// Runs something when it goes, also while a panic passes by.
pub(crate) struct OnDrop<F: FnOnce()>(ManuallyDrop<F>);

impl<F: FnOnce()> OnDrop<F> {
    #[inline]
    pub(crate) fn new(last: F) -> Self {
        OnDrop(ManuallyDrop::new(last))
    }

    /// It is not needed any more.
    #[inline]
    pub(crate) fn forget(self) {
        forget(self);
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody takes it but this drop, which runs once.
        let last = unsafe { ManuallyDrop::take(&mut self.0) };
        last();
    }
}

/// Tells a hook: its panics end here.
#[cfg(feature = "std")]
#[inline]
pub(crate) fn tell(hook: impl FnOnce()) {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    if let Err(payload) = catch_unwind(AssertUnwindSafe(hook)) {
        // To drop it may panic, too.
        forget(payload);
    }
}

/// Tells a hook: a panic within a panic ends the program.
#[cfg(not(feature = "std"))]
#[inline]
pub(crate) fn tell(hook: impl FnOnce()) {
    let last = OnDrop::new(|| panic!("a lock's hook panicked"));
    hook();
    forget(last);
}

/// Both are told, each of what it wants; of what ends the second one first.
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
            tell(|| self.0.contention_begin(lock, mode));
        }
        if B::WAITS {
            tell(|| self.1.contention_begin(lock, mode));
        }
    }

    #[inline]
    fn contention_end(&self, lock: &Lock, mode: Mode, outcome: Outcome, waited: Duration) {
        if B::WAITS {
            tell(|| self.1.contention_end(lock, mode, outcome, waited));
        }
        if A::WAITS {
            tell(|| self.0.contention_end(lock, mode, outcome, waited));
        }
    }

    #[inline]
    fn acquiring(&self, lock: &Lock, mode: Mode) {
        if A::HOLDS {
            tell(|| self.0.acquiring(lock, mode));
        }
        if B::HOLDS {
            tell(|| self.1.acquiring(lock, mode));
        }
    }

    #[inline]
    fn acquired(&self, lock: &Lock, mode: Mode, way: Way) {
        if A::HOLDS {
            tell(|| self.0.acquired(lock, mode, way));
        }
        if B::HOLDS {
            tell(|| self.1.acquired(lock, mode, way));
        }
    }

    #[inline]
    fn downgraded(&self, lock: &Lock, from: Mode, to: Mode) {
        if A::HOLDS {
            tell(|| self.0.downgraded(lock, from, to));
        }
        if B::HOLDS {
            tell(|| self.1.downgraded(lock, from, to));
        }
    }

    #[inline]
    fn released(&self, lock: &Lock, mode: Mode) {
        if B::HOLDS {
            tell(|| self.1.released(lock, mode));
        }
        if A::HOLDS {
            tell(|| self.0.released(lock, mode));
        }
    }
}
