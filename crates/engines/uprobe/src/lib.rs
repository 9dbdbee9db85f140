//! What runs when a thread hits a probe, and the protocol that puts probes into live code.
//!
//! Code is patched while threads run it, and a hit writes only its own thread's memory.
//!
//! - [`patcher`] writes a jump while threads run the bytes: about 2 us a site in batches.
//! - [`table`]: where a thread that hit a trap byte continues.
//! - [`thunks`]: code that *followed* calls return to, so that their returns are counted.
//! - [`frames`]: a thread's followed calls in progress.
//! - [`claim`] gives threads slabs of counters. A hit is then an increment: 0.2 to 1 ns, including the jumps.
//! - [`lookup`]: an address's probe while mappings change; [`feed`] keeps it up to date.
//! - [`window`]: whether a site's bytes are ours.
//!
//! Two threads must not patch one site. So one thread of the *agent*, tiptoe's library inside the program, owns the
//! patcher and the table's writing side.
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
