//! Walks stacks by compiled unwind tables. Needs no frame pointers, allocator or library.
//!
//! tiptoe executes `.eh_frame`'s instructions once (`compile`), and keeps sorted *rows* of 8 bytes. A row's [`Rule`] is
//! valid up to the next row. The agent, our library inside the traced program, only searches the rows ([`find`]),
//! because it must not allocate memory there.
//!
//! The *canonical frame address* (CFA) is the stack pointer before the call. In most functions it has a fixed distance
//! from the stack pointer or %rbp, and %rbp is saved in the frame or unchanged. Other code has [`Rule::UNKNOWN`].
//!
//! Tables and stacks may be corrupt. So a search takes at most 32 iterations. A step goes up at most 64 KiB, and reads
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
