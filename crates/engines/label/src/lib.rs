//! Which scope each thread is in: what runs when a thread enters or leaves a scope.
//!
//! A switch makes no system call, takes no lock, and writes only its thread's words. Threads share
//! the [table of nodes](nodes), which is written only when a scope is first entered inside another.
//!
//! - [`nodes`] gives a number to each node, which is a scope within its parent node.
//! - [`switch`] charges a thread's time to the node that it leaves, and records the one that it
//!   enters.
//!
//! All of it works on the caller's words of slabs ([`tiptoe_wire::scopes`]), calls nothing outside
//! this crate, and may be interrupted anywhere by a signal handler that switches.
//!
//! *Cost*: entering and leaving take at most 25 ns (`tiptoe-dev bench scope`), mostly for two
//! readings of the clock.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(all(test, tiptoe_loom))]
mod models;
pub mod nodes;
mod primitive;
pub mod switch;
