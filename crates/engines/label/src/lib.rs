//! What runs when a thread of the traced program enters or leaves a *scope*, a part of its work that the program
//! labels.
//!
//! A [switch] to another scope makes no system call and takes no lock. It writes only the thread's own words, and a
//! node of a [shared table](nodes) when a scope is first entered inside another. A signal handler that switches may
//! interrupt it anywhere.
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
