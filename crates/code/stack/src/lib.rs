//! Walks stacks by compiled unwind tables. Needs no frame pointers, allocator or library.
//!
//! The host runs `.eh_frame`'s programs once (`compile`), and keeps sorted *rows* of 8 bytes. A row's [`Rule`] holds
//! up to the next row. The agent only searches rows ([`find`]), because a hook must not allocate or interpret DWARF.
//!
//! The *canonical frame address* (CFA) is the stack pointer before the call. Most functions compute it from the
//! stack pointer or %rbp, and save %rbp in their frame or leave it alone. Other code is [`Rule::UNKNOWN`].
//!
//! Tables and stacks may be corrupt: a search takes at most 32 turns, and a step goes up at most 64 KiB and reads
//! nothing below the stack pointer.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "compile")]
pub mod compile;
mod rule;
mod table;

pub use rule::{Base, Frame, Rule};
pub use table::{encode_row, find};
