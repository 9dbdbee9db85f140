//! The wrapper of a raw lock.
//!
//! With [`Hook::WAITS`], the wrapper tries the lock, and calls the hook before and after a wait. With [`Hook::HOLDS`],
//! it calls the hook before and after each acquisition, and before each release. Methods like `try_lock` call the hook
//! only after success.

use core::any::TypeId;
use core::fmt;
use core::marker::PhantomData;
use core::panic::Location;

use crate::acquisition::{Lock, Mode, Outcome, Way};
use crate::class::{Class, Unnamed};
use crate::hook::{Hook, Nothing, OnDrop, call};
use crate::kind::Kind;
use crate::port;
use crate::primitive::{about_to_write, pause};

#[cfg(all(feature = "validate", not(tiptoe_loom)))]
type Checked<H> = crate::order::Always<H>;
#[cfg(not(all(feature = "validate", not(tiptoe_loom))))]
type Checked<H> = H;

/// A raw lock for [`lock_api::Mutex`] and [`lock_api::RwLock`]. It wraps the raw lock `R`, has `R`'s methods, and calls
/// the hook `H` when a thread must wait.
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
    /// Wraps a raw lock that no thread holds.
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

    /// Returns the lock's hook.
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

    /// Takes the lock, at once or by `wait`.
    ///
    /// # Safety
    ///
    /// As for [`Kind::attempt`], and `wait` must return [`Outcome::Acquired`] only with the lock held.
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
            call(|| self.hook.acquiring(&self.describe(depth, site), K::MODE));
        }
        let taken = match <Checked<H> as Hook>::WAITS {
            true => {
                about_to_write(&self.raw);
                // SAFETY: the caller keeps `Kind::attempt`'s contract.
                unsafe {
                    K::attempt(&self.raw) || {
                        core::hint::cold_path();
                        let address = core::ptr::from_ref(self).addr();
                        let token = port::begin::<C>(address, K::PORT_MODE);
                        self.wait_slow::<K>(depth, site, token, wait)
                    }
                }
            }
            false => wait(&self.raw).is_acquired(),
        };
        if <Checked<H> as Hook>::HOLDS && taken {
            self.report_acquired(depth, site, K::MODE, Way::Wait);
        }
        taken
    }

    /// # Safety
    ///
    /// As for [`Kind::attempt`].
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn take<K: Kind<R>>(&self, depth: u8) {
        let wait = |raw: &R| {
            // SAFETY: the caller keeps `Kind::attempt`'s contract.
            unsafe { K::wait(raw) };
            Outcome::Acquired
        };
        // SAFETY: as above; `wait` returns only with the lock held.
        unsafe { self.acquire::<K>(depth, wait) };
    }

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
        // SAFETY: the caller keeps `acquire`'s contract.
        unsafe { self.acquire::<K>(0, wait) }
    }

    /// # Safety
    ///
    /// As for [`Kind::attempt`].
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn attempt<K: Kind<R>>(&self) -> bool {
        // SAFETY: the caller keeps `Kind::attempt`'s contract.
        let taken = unsafe { K::attempt(&self.raw) };
        if <Checked<H> as Hook>::HOLDS && taken {
            self.report_acquired(0, Location::caller(), K::MODE, Way::Try);
        }
        taken
    }

    /// Waits, and passes `token` to tiptoe's agent (its code in the program) at the end.
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
        call(|| self.hook.contention_begin(&lock, K::MODE));
        let since = <Checked<H> as Hook>::now();
        let panicked = OnDrop::new(|| self.over_slow::<K>(&lock, Outcome::Panicked, since, token));
        pause();
        let outcome = wait(&self.raw);
        panicked.forget();
        if outcome.is_acquired() {
            // Must be short, because other threads may wait for the lock.
            self.over::<K>(&lock, Outcome::Acquired, since, token);
            return true;
        }
        self.over_slow::<K>(&lock, outcome, since, token);
        false
    }

    #[inline(always)]
    fn over<K: Kind<R>>(&self, lock: &Lock, outcome: Outcome, since: u64, token: u64) {
        let ticks = <Checked<H> as Hook>::now().saturating_sub(since);
        call(|| self.hook.contention_over(lock, K::MODE, outcome, ticks));
        port::end(token, outcome);
    }

    #[cold]
    #[inline(never)]
    fn over_slow<K: Kind<R>>(&self, lock: &Lock, outcome: Outcome, since: u64, token: u64) {
        self.over::<K>(lock, outcome, since, token);
    }

    #[inline]
    fn report_acquired(&self, depth: u8, site: &'static Location<'static>, mode: Mode, way: Way) {
        call(|| self.hook.acquired(&self.describe(depth, site), mode, way));
    }

    #[inline]
    #[track_caller]
    pub(crate) fn release(&self, held: Mode, unlock: impl FnOnce(&R)) {
        if <Checked<H> as Hook>::HOLDS {
            let lock = self.describe(0, Location::caller());
            call(|| self.hook.released(&lock, held));
        }
        unlock(&self.raw);
    }

    #[inline]
    #[track_caller]
    pub(crate) fn downgrade_to(&self, from: Mode, to: Mode, change: impl FnOnce(&R)) {
        if <Checked<H> as Hook>::HOLDS {
            let lock = self.describe(0, Location::caller());
            call(|| self.hook.downgraded(&lock, from, to));
        }
        change(&self.raw);
    }

    #[inline]
    pub(crate) fn must_see_bumps(&self) -> bool {
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
