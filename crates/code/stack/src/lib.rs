//! Walks stacks without frame pointers, allocator or library, by compiled unwind tables.
//!
//! `.eh_frame` holds a small program for each function. tiptoe runs them once, on the host, and
//! keeps sorted *rows*, whose [`Rule`] is valid up to the next row. The agent only searches rows and
//! steps from frame to frame, because a hook must not allocate or interpret DWARF.
//!
//! - [`Rule`] is one step in 26 bits; a row is an address and a rule in 64.
//! - [`find`] searches rows in any storage.
//! - `compile` makes the rows (feature `compile`, on the host).
//!
//! The *canonical frame address* (CFA) is the stack pointer before the call. Nearly all functions
//! find it from the stack pointer or %rbp, have the return address right below, and save %rbp in
//! their frame or leave it alone. Other code is [`Rule::UNKNOWN`], where a walk stops.
//!
//! Tables and stacks may be corrupt, so every loop must have a bound: a search takes at most 32
//! turns, and a step goes up at most 64 KiB and reads nothing below the stack pointer.
//!
//! Cost: 8 bytes a row.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "compile")]
pub mod compile;
mod rule;
mod table;

pub use rule::{Base, Frame, Rule};
pub use table::{encode_row, find};
