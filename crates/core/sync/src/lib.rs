//! Synchronization for the engines. None of it makes a system call or allocates, and only
//! [`Shards`] wait without bound.
//!
//! - [`SeqCount`] lets readers read without writing: afterwards they check whether anything
//!   changed. Two loads per read.
//! - [`RwLock`] is for readers that must not speculate. Every attempt is bounded, because the
//!   holder may be the thread that a signal handler interrupted; waiting for it would deadlock.
//! - [`Shards`] are mutexes that together form a reader-writer lock, in the caller's words. Readers
//!   share no word. A thread waits by the caller's [`Wait`].
//! - [`Pool`] hands out blocks of words that stay blocks for ever, so that a reader with an old
//!   index reads garbage at worst.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | E: a change is complete | [`SeqCount::write_end`] | [`SeqCount::try_begin`] |
//! | F: a change has begun | fence in [`SeqCount::write_begin`] | fence in [`SeqCount::retry`] |
//! | G: the lock was released | drop of either guard | [`RwLock::try_read`], [`RwLock::try_write`] |
//! | H: a shard was released | the exchange when a guard of [`Shards`] is dropped | every way to take a shard |
//!
//! Data under a sequence count must be atomic, otherwise reading it is a data race. It may be
//! Relaxed.
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
