//! What runs when a thread of the traced program enters or leaves a *scope*, a labelled part of the thread's work.
//!
//! A [switch] to another scope makes no system call and takes no lock. It writes the thread's own words. When a scope
//! is first entered inside another, it also adds a node to a [shared table](nodes). A signal handler may interrupt a
//! switch anywhere, and switch, too.
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
