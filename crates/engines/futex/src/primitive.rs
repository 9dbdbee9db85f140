//! The crate's only atomics, which models replace by loom's.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{Ordering, fence};
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{Ordering, fence};
