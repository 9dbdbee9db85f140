//! What planner and agent agree on about an arena: 64 KiB for trampolines, and what
//! unwinders are told of these.
//!
//! | offset | content |
//! | --- | --- |
//! | 0 | the gate page, which a forked child finds wiped |
//! | [`PROLOGUE`] | the ways to the agent; behind them what unwinders are told of these |
//! | behind that | trampolines from below; from above what unwinders are told of each |
//! | [`INDEX`] | where that is, two bytes for each block of [`BLOCK`] |

/// The length, and the alignment, of an arena.
pub const LEN: u64 = 0x1_0000;
/// Where the ways to the agent are.
pub const PROLOGUE: u64 = 0x1000;
/// What unwinders are told of them.
pub const PROLOGUE_TOLD: u64 = PROLOGUE + 80;
/// Where the index is: [`LEN`] / [`BLOCK`] numbers of two bytes. For a block in which a
/// trampoline begins: where what unwinders are told of it is, in units of [`UNIT`]; else 0.
pub const INDEX: u64 = 0xf000;
/// No trampoline takes fewer bytes than a block has, so that only one begins in each.
pub const BLOCK: u64 = 32;
/// What unwinders are told begins at a multiple of this, and has as many bytes.
pub const UNIT: u64 = 16;

/// The arena that holds an address.
pub const fn base(address: u64) -> u64 {
    address & !(LEN - 1)
}

/// The place in the index of the trampoline that begins at an address.
pub const fn entry(trampoline: u64) -> u64 {
    base(trampoline) + INDEX + trampoline % LEN / BLOCK * 2
}

/// The description of a range of code, as the words of `.eh_frame_hdr` and `.eh_frame`
/// that an unwinder reads: one CIE and one FDE.
pub mod told {
    /// Where in it the FDE's first address stands, as the distance from there.
    pub const BEGIN: u64 = 20 + 24 + 8;
    /// Where the number of bytes stands.
    pub const COUNT: u64 = BEGIN + 4;
}
