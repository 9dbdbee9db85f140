//! The crate's only import of atomics, so that loom runs the shipped code.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{AtomicU64, Ordering};
