//! Synchronization without system calls or allocation. A signal handler that waited for the thread it interrupted would
//! deadlock. So all waits are bounded, except those for [`Shards`]. A handler must call only the `try_` methods of
//! [`Shards`].
//!
//! - [`SeqCount`]: readers detect a change, and repeat the read.
//! - [`RwLock`]: for readers that cannot repeat a read.
//! - [`Shards`]: a reader-writer lock whose readers share no word.
//! - [`ThreadLock`]: if a thread holds it for life, the kernel releases it when the thread has ended.
//! - [`Pool`]: blocks of words that are never reused as anything else, so that an old index still refers to a block.
//!
//! Comments cite an ordering by the letter of its edge:
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | E: a change is complete | [`SeqCount::write_end`] | [`SeqCount::try_begin`] |
//! | F: a change has begun | fence in [`SeqCount::write_begin`] | fence in [`SeqCount::retry`] |
//! | G: the lock was released | drop of a guard of [`RwLock`] | [`RwLock::try_read`], [`RwLock::try_write`] |
//! | H: a shard was released | drop of a guard of [`Shards`] | every way to take a shard |
//! | I: a thread lock was released | [`ThreadLock::unlock`], the kernel at a thread's end | every way to take it |
//!
//! Data under a sequence count must be atomic, otherwise a read during a change is a data race. Relaxed suffices,
//! because edges E and F order the accesses.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod lock;
#[cfg(all(test, tiptoe_loom))]
mod models;
#[cfg(all(test, tiptoe_loom))]
mod models_shards;
#[cfg(all(test, tiptoe_loom))]
mod models_threads;
#[cfg(tiptoe_loom)]
pub mod mutant;
mod pool;
mod primitive;
mod sequence;
mod shards;
mod thread_lock;

pub use lock::{ReadGuard, RwLock, WriteGuard};
pub use pool::Pool;
pub use sequence::SeqCount;
pub use shards::{AllShardsGuard, ShardGuard, Shards, Wait};
pub use thread_lock::{ThreadLock, ThreadLockState};
