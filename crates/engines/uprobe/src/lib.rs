//! Everything that runs on a hit, and the protocol that puts probes into live code.
//!
//! No thread is stopped to be patched, and a hit writes only memory of its own thread.
//!
//! - [`patcher`] turns bytes into a jump while threads run them: a trap byte on every instruction
//!   head, a core-wide refetch, the tail, a refetch, the first byte. About 2 us a site in batches.
//! - [`table`]: where a thread that hit such a trap byte continues.
//! - [`thunks`] lead followed calls back to their callers.
//! - [`frames`]: the calls that a thread is inside, for those that are timed.
//! - [`claim`] gives each thread a slab of counters, once. A hit is then an increment (0.2 to 1 ns
//!   with the jump there and back).
//! - [`lookup`]: an address's probe while mappings change. Writes nothing shared.
//! - [`feed`] keeps the address space of `lookup` up to date.
//! - [`window`]: whether a site is still ours, by its bytes.
//!
//! Two threads must not patch one site: one agent thread owns the patcher and the table's writing
//! side.
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
