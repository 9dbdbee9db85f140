//! All atomics are imported from here, so that loom runs the shipped code.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{AtomicU64, Ordering, fence};
