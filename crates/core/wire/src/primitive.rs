//! The one door to atomics, so that loom runs the shipped code.

#[cfg(tiptoe_loom)]
pub(crate) use crate::mutant::{AtomicU64, Ordering};
#[cfg(not(tiptoe_loom))]
pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
