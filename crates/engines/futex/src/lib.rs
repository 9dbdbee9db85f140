//! The hooks that run where a thread is about to wait for a lock in the kernel, or to wake a
//! waiter.
//!
//! Acquisitions that do not wait are not timed, and the lock's fast path is unchanged. Hooks run
//! only around a futex system call, which itself costs 100 ns or more.
//!
//! - [`activities`]: the waits that a thread is in.
//! - [`entries`]: a thread's sums, by lock and call site.
//! - [`board`]: the last wake at each address.
//! - [`history`]: which threads took locks for which others slept. Only this and the board are shared by
//!   threads.
//! - [`owner`]: which thread holds a lock, as the lock records it.
//! - `blame`: charges a wait to those who held the lock.
//! - [`gaps`]: which waits are timed when not all can be.
//! - [`holds`]: hold times of one lock, on request.
//! - [`rwlock`]: how many readers hold a rwlock while others wait.
//! - [`walk`]: the user's call site above libc's frames.
//! - [`operation`]: whether a call waits or wakes, and how a wait ended.
//! - [`paths`]: a cache of walks.
//! - [`calls`]: a wait, a wake, an episode; composes the others.
//! - `abandoned_waits`: waits that never return.
//! - [`reported`]: waits that a library of the program reports itself.
//!
//! All of it works on words of slabs ([`tiptoe_wire::futex`]) that the caller provides. It takes no
//! lock and makes no call outside of this crate. A signal handler may interrupt it anywhere and run
//! it again.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod abandoned_waits;
pub mod activities;
mod blame;
pub mod board;
pub mod calls;
pub mod entries;
pub mod gaps;
pub mod history;
pub mod holds;
#[cfg(all(test, tiptoe_loom))]
mod models;
#[cfg(all(test, tiptoe_loom))]
mod models_history;
#[cfg(all(test, tiptoe_loom))]
mod models_reported;
pub mod operation;
pub mod owner;
pub mod paths;
mod primitive;
pub mod reported;
pub mod rwlock;
pub mod walk;

/// A factor that makes the upper bits depend on all bits.
const HASH: u64 = tiptoe_wire::calls::HASH;
