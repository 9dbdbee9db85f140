//! What runs when a thread of the traced program enters or leaves a *scope*, a labelled part of the thread's work.
//!
//! A [switch] to another scope makes no system call, takes no lock, and writes the thread's own words. The first
//! switch to a scope inside another one adds an entry to a [shared table](nodes). A signal handler that interrupts a
//! switch may itself switch.
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
