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
