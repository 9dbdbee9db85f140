//! The layout of an arena: 64 KiB for trampolines, with the unwind information for them.
//!
//! | offset | content |
//! | --- | --- |
//! | [`PROLOGUE`] | entries to the agent, their unwind information, and two addresses |
//! | after that | trampolines upwards; from the end downwards their unwind information |
//! | [`INDEX`] | where that is, two bytes a [`BLOCK`] |
//! | [`CALLERS`] | return addresses of the first calls of each following trampoline |

/// The length and alignment of an arena.
pub const LEN: u64 = 0x1_0000;
/// Offset of the entries to the agent.
pub const PROLOGUE: u64 = 0;
/// Offset of their unwind information.
pub const PROLOGUE_UNWIND: u64 = PROLOGUE + 80;
/// Offset of the index: [`LEN`] / [`BLOCK`] numbers of two bytes: the offset, in [`UNIT`]s, of the
/// unwind information of the trampoline that begins in the block; else 0.
pub const INDEX: u64 = 0xf000;
/// Offset of words that the agent writes, [`WAYS`] for each [`SPAN`]: the return addresses of calls
/// that the trampoline follows by itself; 0 before the first. They must never change afterwards,
/// because a call may return through them at any later time.
pub const CALLERS: u64 = 0xf800;
/// Return addresses of a trampoline.
pub const WAYS: usize = 2;
/// The least length of a trampoline with such words, so that no other shares its words.
pub const SPAN: u64 = 512;
// They fill the rest of the index's page.
const _: () = assert!(LEN / SPAN * WAYS as u64 * 8 == LEN - CALLERS);
const _: () = assert!(LEN / BLOCK * 2 == CALLERS - INDEX && LEN - INDEX == 0x1000);
/// The least length of a trampoline, so that at most one begins in each block.
pub const BLOCK: u64 = 64;
/// The alignment of unwind information, and the unit of its length.
pub const UNIT: u64 = 16;

/// Returns the arena of an address.
pub const fn base(address: u64) -> u64 {
    address & !(LEN - 1)
}

/// Returns the index entry of the trampoline at an address.
pub const fn entry(trampoline: u64) -> u64 {
    base(trampoline) + INDEX + trampoline % LEN / BLOCK * 2
}

/// Returns the word for a return address that a trampoline follows by itself.
pub const fn caller(trampoline: u64, way: usize) -> u64 {
    let first = trampoline % LEN / SPAN * WAYS as u64;
    base(trampoline) + CALLERS + (first + way as u64) * 8
}

/// Unwind information of code, as words of `.eh_frame_hdr` and `.eh_frame`. A trampoline that
/// follows calls by itself has [`unwind_info::PARTS`] entries, every second for the code where such
/// calls return. Others have one.
pub mod unwind_info {
    /// Offset of the number of entries.
    pub const ENTRIES: u64 = 8;
    /// Offset of the first entry: its code and its FDE, relative to the start. The code ends where
    /// the next entry's begins.
    pub const TABLE: u64 = 12;
    /// Bytes of an entry.
    pub const ENTRY: u64 = 8;
    /// Offset of the code's length in an FDE.
    pub const COUNT: u64 = 12;
    /// The number of entries if calls are followed.
    pub const PARTS: u32 = 1 + 2 * super::WAYS as u32;
    /// Offset, in that case, of the probe's first word.
    pub const SLOT: u64 = TABLE + PARTS as u64 * ENTRY;
    /// Offset of where calls return, from the start of such a part.
    pub const RETURN: u64 = 4;
}
