//! All that runs where a thread is about to wait for a lock in the kernel, or wakes one
//! that does.
//!
//! The coordination removed: nobody times an acquisition that does not wait. The lock's
//! own fast path is as it was; what is here runs only in front of a futex call and behind
//! it, each of which costs its thread 100 ns and more by itself.
//!
//! - [`activities`] knows the waits that a thread is in.
//! - [`entries`] sums up what a thread did, by lock and call site.
//! - [`board`] tells who last woke somebody at an address: the one shared thing here.
//! - [`gaps`] says which waits are timed, where not all can be.
//! - [`holds`] times how long one lock is held, where that is asked for.
//! - [`rwlock`] tells how many read where others wait.
//! - [`walk`] finds the user's call site above libc's frames.
//! - [`operation`] tells waits from wakes, and how a wait ended.
//! - [`paths`] knows the ways to it that a thread has come before.
//! - [`calls`] puts these together: a wait, a wake, an episode.
//! - [`told`] has waits that a library of the program's tells of by itself.
//!
//! All of it works on words of slabs ([`tiptoe_wire::futex`]) that the caller finds, takes
//! no lock, calls nobody and may be interrupted by a signal handler that waits itself.
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
mod models_told;
pub mod operation;
pub mod paths;
mod primitive;
pub mod rwlock;
pub mod told;
pub mod walk;

/// Multiplied by this, the upper bits of a word depend on all of it.
const HASH: u64 = tiptoe_wire::calls::HASH;
