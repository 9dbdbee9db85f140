//! What runs when a thread is about to wait for a lock in the kernel, or to wake a waiter.
//!
//! Hooks run only around a futex system call, which costs 100 ns or more. A lock's fast path is unchanged.
//!
//! A *slab* is a thread's part of the memory shared with tiptoe, the tracing process; slab 0 is common to all threads.
//! Hooks change only slabs ([`tiptoe_wire::futex`]), take no lock, and call no function of the program. A signal
//! handler may interrupt a hook anywhere, and run hooks.
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

const HASH: u64 = tiptoe_wire::calls::HASH;
