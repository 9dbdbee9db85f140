//! Memory orderings, which loom tests can weaken.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::Ordering;
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::Ordering;
