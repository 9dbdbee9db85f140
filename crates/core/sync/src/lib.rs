//! What engines coordinate with, where they cannot do without: none of it makes
//! a system call or allocates, and only [`Shards`] wait without bound.
//!
//! - [`SeqCount`] lets readers look without writing: they ask afterwards whether
//!   anything changed meanwhile. Two loads a read.
//! - [`RwLock`] is for those who may not speculate. Everybody gives up after a
//!   bounded number of looks, because whoever holds it may be the very thread
//!   that a signal handler interrupted.
//! - [`Shards`] are mutexes that together are a reader-writer lock, in the caller's
//!   words. Readers share no word; who waits does so as the caller's [`Wait`] says.
//! - [`Pool`] hands out blocks of words that stay blocks for ever, so that a
//!   reader with an old index reads garbage at worst.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | E: a change is complete | [`SeqCount::write_end`] | [`SeqCount::try_begin`] |
//! | F: a change has begun | fence in [`SeqCount::write_begin`] | fence in [`SeqCount::retry`] |
//! | G: the lock was given back | drop of either guard | [`RwLock::try_read`], [`RwLock::try_write`] |
//! | H: a shard was given back | the exchange when a guard of [`Shards`] is dropped | every way to take a shard |
//!
//! Payload under a sequence count is atomic and may be Relaxed.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod lock;
#[cfg(all(test, tiptoe_loom))]
mod models;
#[cfg(all(test, tiptoe_loom))]
mod models_shards;
#[cfg(tiptoe_loom)]
pub mod mutant;
mod pool;
mod primitive;
mod sequence;
mod shards;

pub use lock::{ReadGuard, RwLock, WriteGuard};
pub use pool::Pool;
pub use sequence::SeqCount;
pub use shards::{All, One, Shards, Wait};
