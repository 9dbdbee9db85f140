//! What runs when a thread enters or leaves a scope: a label that the program puts on what its threads do.
//!
//! A [switch] to another scope makes no system call, takes no lock, and writes only its thread's words; a signal
//! handler that switches may interrupt it anywhere. Threads share the [table of nodes](nodes), written only when a
//! scope is first entered inside another.
//!
//! *Cost*: entering and leaving together take at most 25 ns (`tiptoe-dev bench scope`), mostly for two readings of the
//! clock.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(all(test, tiptoe_loom))]
mod models;
pub mod nodes;
mod primitive;
pub mod switch;
