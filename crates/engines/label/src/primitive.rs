//! Orderings, which models replace by versions that a mutant can weaken.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::Ordering;
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::Ordering;
