//! The crate's only atomics. In tests by loom, a model checker, they are loom's.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{AtomicU64, Ordering};
