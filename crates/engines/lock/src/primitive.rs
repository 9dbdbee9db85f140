//! The one door to atomics and cells, so that loom runs the shipped code.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(tiptoe_loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{AtomicU64, Ordering};

/// core's cell, with loom's way to look into it.
#[cfg(not(tiptoe_loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(tiptoe_loom))]
impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    #[inline]
    pub(crate) fn with<A>(&self, look: impl FnOnce(*const T) -> A) -> A {
        look(self.0.get())
    }

    #[inline]
    pub(crate) fn with_mut<A>(&self, change: impl FnOnce(*mut T) -> A) -> A {
        change(self.0.get())
    }
}

/// A moment, as the raw lock's own spinning begins with one: to ask again at once for what was just found taken would
/// but take the cache line from the holder, who has to give the lock back by it.
#[inline]
pub(crate) fn pause() {
    for _ in 0..2 {
        core::hint::spin_loop();
    }
}

/// Has the processor fetch what is about to be written: to look first, as a try does, and to write
/// then, as the wait behind it does, would be two turns between CPUs. A hint, which does nothing
/// where the processor knows none.
#[inline(always)]
pub(crate) fn about_to_write<T>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it changes nothing that a program sees, whatever the address.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) core::ptr::from_ref(what),
                         options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}
