//! Atomics and cells, which models replace by loom's, and hints to the CPU.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(tiptoe_loom)]
pub(crate) use loom::cell::UnsafeCell;
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{AtomicU64, Ordering};

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

/// Pauses before the raw lock tries again. A try at once would take the cache line from the holder, and so delay the
/// release.
#[inline]
pub(crate) fn pause() {
    for _ in 0..2 {
        core::hint::spin_loop();
    }
}

/// Prefetches a cache line for writing. Otherwise the line would be transferred twice: for the try, which reads, and
/// for the wait, which writes. CPUs without the instruction ignore it.
#[inline(always)]
pub(crate) fn about_to_write<T>(what: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch changes no visible state and never faults.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) core::ptr::from_ref(what),
                         options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = what;
}
