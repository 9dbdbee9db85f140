//! Which scope each thread is in: what runs when a thread enters or leaves a scope.
//!
//! The coordination removed: a switch of scopes makes no system call and takes no lock. It writes
//! words that only its thread writes. Threads share only the [table of nodes](nodes); it is written
//! only when a scope is first entered inside another.
//!
//! - [`nodes`] numbers each scope within another.
//! - [`switch`] charges a thread's time to the node that it leaves, and records the one that it
//!   enters.
//!
//! All of it works on words of slabs ([`tiptoe_wire::scopes`]) that the caller provides. It makes
//! no calls outside of this crate, and a signal handler that switches itself may interrupt it
//! anywhere.
//!
//! *Cost*: entering and leaving take at most 25 ns (`tiptoe-dev bench scope`), mostly for reading the
//! clock twice.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(all(test, tiptoe_loom))]
mod models;
pub mod nodes;
mod primitive;
pub mod switch;
