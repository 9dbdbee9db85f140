//! The crate's only atomics, which models replace by loom's.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{AtomicU32, AtomicU64, Ordering, fence};
