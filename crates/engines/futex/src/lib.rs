//! The hooks that run where a thread is about to wait for a lock in the kernel, or to wake a
//! waiter.
//!
//! The coordination removed: acquisitions that do not wait are not timed, and the lock's fast path
//! is unchanged. Hooks run only around a futex system call, which itself costs 100 ns or more.
//! [`calls`] composes the other modules.
//!
//! All of it works on the caller's words of slabs ([`tiptoe_wire::futex`]), takes no lock and calls
//! nothing outside this crate. A signal handler may interrupt it anywhere and run it again.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod activities;
pub mod board;
pub mod calls;
pub mod entries;
pub mod gaps;
pub mod holds;
#[cfg(all(test, tiptoe_loom))]
mod models;
#[cfg(all(test, tiptoe_loom))]
mod models_reported;
pub mod operation;
pub mod paths;
mod primitive;
pub mod reported;
pub mod rwlock;
pub mod walk;

/// A factor that makes the upper bits depend on all bits.
const HASH: u64 = tiptoe_wire::calls::HASH;
