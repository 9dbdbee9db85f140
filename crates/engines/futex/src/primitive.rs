//! The one door to atomics, so that loom runs the shipped code.

#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{Ordering, fence};
#[cfg(tiptoe_loom)]
pub(crate) use tiptoe_sync::mutant::{Ordering, fence};
