//! The wrapper: what every way to take a lock and to give it back goes through.
//!
//! | | without a hook | with one |
//! |---|---|---|
//! | free | the raw lock's own way | its `try`, which takes it |
//! | taken | the raw lock's own way | its `try`, which fails; begin; the raw lock's own way; end |
//!
//! Who wants each acquisition is told before the `try` and behind it, so that the shortcut
//! hides nothing.

use core::any::TypeId;
use core::fmt;
use core::marker::PhantomData;
use core::panic::Location;

use crate::class::{Class, Unnamed};
use crate::hook::{Hook, Nothing, OnDrop, tell};
use crate::kind::Kind;
use crate::port;
use crate::primitive::{about_to_write, pause};
use crate::told::{Lock, Mode, Outcome, Way};

/// With the feature `validate` the order of every lock is checked.
#[cfg(all(feature = "validate", not(tiptoe_loom)))]
type Checked<H> = crate::order::Always<H>;
#[cfg(not(all(feature = "validate", not(tiptoe_loom))))]
type Checked<H> = H;

/// A raw lock of lock_api's that tells its hook when somebody waits.
///
/// It is a raw lock itself: it goes into [`lock_api::Mutex`] or [`lock_api::RwLock`], and can do
/// whatever the raw lock `R` can.
///
/// ```
/// use tiptoe_lock::{Contended, Waits};
///
/// type Mutex<T> = lock_api::Mutex<Contended<parking_lot::RawMutex, Waits>, T>;
///
/// static COUNT: Mutex<u32> = Mutex::new(0);
/// *COUNT.lock() += 1;
/// assert_eq!(*COUNT.lock(), 1);
/// ```
pub struct Contended<R, H = Nothing, C = Unnamed> {
    raw: R,
    hook: Checked<H>,
    class: PhantomData<fn() -> C>,
}

impl<R, H: Hook, C: Class> Contended<R, H, C> {
    /// Around a raw lock that nobody has yet.
    ///
    /// ```
    /// use lock_api::{Mutex, RawMutex};
    /// use tiptoe_lock::{Contended, Waits};
    ///
    /// let raw = <parking_lot::RawMutex as RawMutex>::INIT;
    /// let names = Mutex::from_raw(Contended::<_, Waits>::new(raw), vec!["a"]);
    /// assert_eq!(names.lock().len(), 1);
    /// ```
    pub const fn new(raw: R) -> Self {
        Contended {
            raw,
            hook: <Checked<H> as Hook>::INIT,
            class: PhantomData,
        }
    }

    /// The lock's hook, for what it keeps there.
    ///
    /// ```
    /// use tiptoe_lock::{Mutex, Waits};
    ///
    /// let lock: Mutex<u32, Waits> = Mutex::new(0);
    /// // SAFETY: nothing is locked or unlocked.
    /// let hook: &Waits = unsafe { lock.raw() }.hook();
    /// assert_eq!(hook, &Waits);
    /// ```
    pub fn hook(&self) -> &H {
        #[cfg(all(feature = "validate", not(tiptoe_loom)))]
        let hook = self.hook.inner();
        #[cfg(not(all(feature = "validate", not(tiptoe_loom))))]
        let hook = &self.hook;
        hook
    }

    /// The raw lock.
    #[inline]
    pub(crate) fn raw(&self) -> &R {
        &self.raw
    }

    #[inline]
    fn describe(&self, depth: u8, site: &'static Location<'static>) -> Lock {
        Lock {
            address: core::ptr::from_ref(self).addr(),
            name: C::NAME,
            class: TypeId::of::<C>(),
            depth,
            site,
        }
    }

    /// Takes the lock in a way: at once, or by a `wait` for it.
    ///
    /// # Safety
    ///
    /// As for [`Kind::attempt`]; and the lock is had if `wait` says so.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn acquire<K: Kind<R>>(
        &self,
        depth: u8,
        wait: impl FnOnce(&R) -> Outcome,
    ) -> bool {
        if !<Checked<H> as Hook>::WAITS && !<Checked<H> as Hook>::HOLDS {
            return wait(&self.raw).is_acquired();
        }
        let site = Location::caller();
        if <Checked<H> as Hook>::HOLDS {
            tell(|| self.hook.acquiring(&self.describe(depth, site), K::MODE));
        }
        let taken = match <Checked<H> as Hook>::WAITS {
            true => {
                about_to_write(&self.raw);
                // SAFETY: the caller's promise.
                unsafe {
                    K::attempt(&self.raw) || {
                        let address = core::ptr::from_ref(self).addr();
                        let token = port::begin::<C>(address, K::PORT_MODE);
                        self.wait_slow::<K>(depth, site, token, wait)
                    }
                }
            }
            false => wait(&self.raw).is_acquired(),
        };
        if <Checked<H> as Hook>::HOLDS && taken {
            self.tell_acquired(depth, site, (K::MODE, Way::Wait));
        }
        taken
    }

    /// Takes the lock in a way, however long that takes.
    ///
    /// # Safety
    ///
    /// As for [`Kind::attempt`].
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn take<K: Kind<R>>(&self, depth: u8) {
        let wait = |raw: &R| {
            // SAFETY: the caller's promise.
            unsafe { K::wait(raw) };
            Outcome::Acquired
        };
        // SAFETY: the caller's promise.
        unsafe { self.acquire::<K>(depth, wait) };
    }

    /// Takes the lock in a way, unless the time is over before.
    ///
    /// # Safety
    ///
    /// As for [`Contended::acquire`].
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn take_timed<K: Kind<R>>(&self, wait: impl FnOnce(&R) -> bool) -> bool {
        let wait = |raw: &R| match wait(raw) {
            true => Outcome::Acquired,
            false => Outcome::TimedOut,
        };
        // SAFETY: the caller's promise.
        unsafe { self.acquire::<K>(0, wait) }
    }

    /// Takes the lock in a way if nobody has to wait for that.
    ///
    /// # Safety
    ///
    /// As for [`Kind::attempt`].
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn attempt<K: Kind<R>>(&self) -> bool {
        // SAFETY: the caller's promise.
        let taken = unsafe { K::attempt(&self.raw) };
        if <Checked<H> as Hook>::HOLDS && taken {
            self.tell_acquired(0, Location::caller(), (K::MODE, Way::Try));
        }
        taken
    }

    /// Somebody has to wait; an agent, if one is there, is told already, and has given a `token`.
    ///
    /// # Safety
    ///
    /// As for [`Contended::acquire`].
    #[cold]
    #[inline(never)]
    unsafe fn wait_slow<K: Kind<R>>(
        &self,
        depth: u8,
        site: &'static Location<'static>,
        token: u64,
        wait: impl FnOnce(&R) -> Outcome,
    ) -> bool {
        let lock = self.describe(depth, site);
        tell(|| self.hook.contention_begin(&lock, K::MODE));
        let since = <Checked<H> as Hook>::now();
        let panicked = OnDrop::new(|| self.over_slow::<K>(&lock, Outcome::Panicked, since, token));
        pause();
        let outcome = wait(&self.raw);
        panicked.forget();
        if outcome.is_acquired() {
            // Others wait for the lock from here on: no detour.
            self.over::<K>(&lock, Outcome::Acquired, since, token);
            return true;
        }
        self.over_slow::<K>(&lock, outcome, since, token);
        false
    }

    /// The wait is over.
    #[inline(always)]
    fn over<K: Kind<R>>(&self, lock: &Lock, outcome: Outcome, since: u64, token: u64) {
        let ticks = <Checked<H> as Hook>::now().saturating_sub(since);
        tell(|| self.hook.contention_over(lock, K::MODE, outcome, ticks));
        port::end(token, outcome);
    }

    #[cold]
    #[inline(never)]
    fn over_slow<K: Kind<R>>(&self, lock: &Lock, outcome: Outcome, since: u64, token: u64) {
        self.over::<K>(lock, outcome, since, token);
    }

    #[inline]
    fn tell_acquired(&self, depth: u8, site: &'static Location<'static>, how: (Mode, Way)) {
        let (mode, way) = how;
        tell(|| self.hook.acquired(&self.describe(depth, site), mode, way));
    }

    /// Gives the lock back by `unlock`.
    #[inline]
    #[track_caller]
    pub(crate) fn release(&self, held: Mode, unlock: impl FnOnce(&R)) {
        if <Checked<H> as Hook>::HOLDS {
            let lock = self.describe(0, Location::caller());
            tell(|| self.hook.released(&lock, held));
        }
        unlock(&self.raw);
    }

    /// From one mode to a lesser one by `change`.
    #[inline]
    #[track_caller]
    pub(crate) fn downgrade_to(&self, (from, to): (Mode, Mode), change: impl FnOnce(&R)) {
        if <Checked<H> as Hook>::HOLDS {
            let lock = self.describe(0, Location::caller());
            tell(|| self.hook.downgraded(&lock, from, to));
        }
        change(&self.raw);
    }

    /// Whether giving the lock to somebody else for a moment is more than the raw lock's affair.
    #[inline]
    pub(crate) fn is_told_of_bumps(&self) -> bool {
        <Checked<H> as Hook>::WAITS || <Checked<H> as Hook>::HOLDS
    }
}

impl<R, H: Hook, C: Class> fmt::Debug for Contended<R, H, C> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.debug_struct("Contended")
            .field("class", &C::NAME)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "parking_lot", not(feature = "validate")))]
mod tests {
    use super::*;
    use crate::{Mutex, RwLock, class};

    #[test]
    fn a_name_takes_no_memory() {
        class! { Named = "named" }
        let bare = [
            size_of::<parking_lot::Mutex<u32>>(),
            size_of::<parking_lot::RwLock<u8>>(),
        ];
        let named = [
            size_of::<Mutex<u32, Nothing, Named>>(),
            size_of::<RwLock<u8, Nothing, Named>>(),
        ];
        assert_eq!(named, bare);
    }
}
