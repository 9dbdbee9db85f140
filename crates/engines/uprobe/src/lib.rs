//! Everything that runs on a hit, and the protocol that puts probes into live code.
//!
//! No thread is stopped to be patched, and a hit writes only its own thread's memory.
//!
//! - [`patcher`] writes a jump while threads run the bytes: about 2 us a site in batches.
//! - [`table`]: where a thread that hit a trap byte continues.
//! - [`thunks`] lead followed calls back.
//! - [`frames`]: a thread's followed calls.
//! - [`claim`] gives threads slabs of counters. A hit is then an increment (0.2 to 1 ns with the jumps).
//! - [`lookup`]: an address's probe while mappings change; [`feed`] keeps it up to date.
//! - [`window`]: whether a site's bytes are ours.
//!
//! Two threads must not patch one site, so one agent thread owns the patcher and the table's writing side.
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
