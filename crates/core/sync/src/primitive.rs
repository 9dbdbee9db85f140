//! The crate's only atomics, which are loom's in models.

#[cfg(tiptoe_loom)]
pub(crate) use crate::mutant::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(tiptoe_loom))]
pub(crate) use core::hint::spin_loop;
#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(tiptoe_loom)]
pub(crate) use loom::hint::spin_loop;
