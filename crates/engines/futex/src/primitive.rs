//! Orderings and fences. Loom models replace them by versions that can be weakened.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{Ordering, fence};
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{Ordering, fence};
