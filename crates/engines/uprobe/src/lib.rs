//! Puts probes into code that threads are running, and counts the hits (executions).
//!
//! A probe patches a place in the code, a *site*. A hit writes only its own thread's memory.
//!
//! - [`patcher`] writes a jump to a trampoline (code that counts) at a site: about 2 us a site in batches.
//! - [`table`]: where a thread that hit a trap byte continues.
//! - [`thunks`]: code through which *followed* calls return, so that their returns are counted.
//! - [`frames`]: each thread's followed calls in progress.
//! - [`claim`] gives threads slabs of counters. A hit then increments a counter: 0.2 to 1 ns, including the jumps.
//! - [`lookup`] finds an address's probe while mappings change; [`feed`] records these changes.
//! - [`window`]: whether a site still has the code that was patched.
//!
//! Two threads must not patch one site. So one thread of the *agent*, tiptoe's library inside the program, patches and
//! writes [`table`].
#![no_std]
#![warn(missing_docs)]

pub mod claim;
pub mod feed;
pub mod frames;
pub mod lookup;
mod mapping;
#[cfg(all(test, tiptoe_loom))]
mod models;
pub mod patcher;
mod primitive;
mod registry;
pub mod table;
pub mod thunks;
pub mod window;
