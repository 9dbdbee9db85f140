//! The layout of an arena: 64 KiB for trampolines, with the unwind information for them.
//!
//! | offset | content |
//! | --- | --- |
//! | [`PROLOGUE`] | the entries to the agent, their unwind information, two addresses |
//! | after that | trampolines, upwards; from the end, their unwind information, downwards |
//! | [`INDEX`] | two bytes for each [`BLOCK`] |
//!
//! A jump that must keep bytes of the code that it replaces reaches only one offset in each arena. So every second
//! arena is rotated by [`LEN`] / 2; otherwise that offset could be reserved in all of them.
//!
//! An arena is read-only. Its trampolines write to their thread's memory, the agent to their [`CALLER_BYTES`].

/// Length and alignment of an arena.
pub const LEN: u64 = 0x1_0000;
/// Offset of the entries to the agent.
pub const PROLOGUE: u64 = 0;
/// Distance from the entries to their unwind information.
pub const PROLOGUE_UNWIND: u64 = 80;
/// Offset of the index: for each [`BLOCK`] where a trampoline begins, its unwind information's offset in [`UNIT`]s;
/// otherwise 0.
pub const INDEX: u64 = 0xf800;
const _: () = assert!(INDEX + LEN / BLOCK * 2 == LEN);
/// Number of return addresses of a trampoline that follows calls by itself. The agent sets each once, from 0, because
/// a call may return through it at any time.
pub const WAYS: usize = 2;
/// Bytes of a trampoline's [`WAYS`] return addresses.
pub const CALLER_BYTES: u64 = 8 * WAYS as u64;
/// The least length of a trampoline, so that at most one begins in a block.
pub const BLOCK: u64 = 64;
/// Alignment and unit of unwind information.
pub const UNIT: u64 = 16;

/// Returns the arena of an address.
pub const fn base(address: u64) -> u64 {
    address & !(LEN - 1)
}

/// Returns the rotation in bytes of the arena of an address.
pub const fn rotation(address: u64) -> u64 {
    address / LEN % 2 * (LEN / 2)
}

/// Returns the address of that arena's entries to the agent.
pub const fn prologue(address: u64) -> u64 {
    base(address) + PROLOGUE + rotation(address)
}

/// Returns the address of a trampoline's index entry.
pub const fn entry(trampoline: u64) -> u64 {
    base(trampoline) + (INDEX + rotation(trampoline)) % LEN + trampoline % LEN / BLOCK * 2
}

/// A trampoline's unwind information, as `.eh_frame_hdr` and `.eh_frame`. It has one entry, or [`unwind_info::PARTS`]
/// if the trampoline follows calls by itself: every second one is for the code to which a followed call returns.
pub mod unwind_info {
    /// Offset of the number of entries.
    pub const ENTRIES: u64 = 8;
    /// Offset of the first entry. An entry is the offsets of its code and its FDE; its code ends where the next begins.
    pub const TABLE: u64 = 12;
    /// Bytes of an entry.
    pub const ENTRY: u64 = 8;
    /// Offset of the code's length in an FDE.
    pub const COUNT: u64 = 12;
    /// Number of entries if calls are followed.
    pub const PARTS: u32 = 1 + 2 * super::WAYS as u32;
    /// If calls are followed: offset of the slot of the probe's first word.
    pub const SLOT: u64 = TABLE + PARTS as u64 * ENTRY;
    /// If calls are followed: offset of the address of the trampoline's return addresses.
    pub const CALLERS: u64 = SLOT + 4;
    /// Offset in every second entry's code to which its call returns.
    pub const RETURN: u64 = 4;
}
