//! The layout of an arena: 64 KiB for trampolines, to which patched places jump, and their unwind information.
//!
//! | offset | content |
//! | --- | --- |
//! | 0 | entries: code that calls the agent (tiptoe's library); their unwind information; two addresses for this code |
//! | after the entries | trampolines, upwards; from the end, their unwind information, downwards |
//! | [`INDEX`] | two bytes for each [`BLOCK`] |
//!
//! A jump that must keep the two bytes after its opcode reaches only one offset in each arena, because these bytes fix
//! its distance modulo [`LEN`]. Entries or index may be at that offset. So the layout of every second arena is rotated
//! by [`LEN`] / 2.
//!
//! An arena is read-only. The addresses to which trampolines return ([`WAYS`]) are elsewhere, because the agent writes
//! them.

/// Length and alignment of an arena.
pub const LEN: u64 = 0x1_0000;
/// Distance from the entries to their unwind information.
pub const PROLOGUE_UNWIND: u64 = 80;
/// Offset of the index. For each [`BLOCK`] the index has the offset, in [`UNIT`]s, of the unwind information of the
/// trampoline that begins in the block, or 0.
pub const INDEX: u64 = 0xf800;
const _: () = assert!(INDEX + LEN / BLOCK * 2 == LEN);
/// Number of callers to which a trampoline can return calls without the agent. The agent sets each return address only
/// once, because calls that are in progress return to it.
pub const WAYS: usize = 2;
/// Bytes of a trampoline's [`WAYS`] return addresses.
pub const CALLER_BYTES: u64 = 8 * WAYS as u64;
/// The least length of a trampoline, so that at most one trampoline begins in a block.
pub const BLOCK: u64 = 64;
/// Alignment and unit of unwind information.
pub const UNIT: u64 = 16;

/// Returns the start of the arena of an address.
pub const fn base(address: u64) -> u64 {
    address & !(LEN - 1)
}

/// Returns the rotation in bytes of the arena of an address.
pub const fn rotation(address: u64) -> u64 {
    address / LEN % 2 * (LEN / 2)
}

/// Returns the address of the agent's entries in an arena.
pub const fn prologue(address: u64) -> u64 {
    base(address) + rotation(address)
}

/// Returns the address of a trampoline's index entry.
pub const fn entry(trampoline: u64) -> u64 {
    base(trampoline) + (INDEX + rotation(trampoline)) % LEN + trampoline % LEN / BLOCK * 2
}

/// A trampoline's unwind information, as `.eh_frame_hdr` and `.eh_frame`. It has one entry, or [`unwind_info::PARTS`]
/// entries, of which every second covers code to which a call returns.
pub mod unwind_info {
    /// Offset of the number of entries.
    pub const ENTRIES: u64 = 8;
    /// Offset of the first entry: the offsets of its code and its FDE. The code ends where the next entry's begins.
    pub const TABLE: u64 = 12;
    /// Bytes of an entry.
    pub const ENTRY: u64 = 8;
    /// Offset of the code's length in an FDE.
    pub const COUNT: u64 = 12;
    /// Number of entries if the trampoline returns calls by itself.
    pub const PARTS: u32 = 1 + 2 * super::WAYS as u32;
    /// With [`PARTS`] entries: offset of the number of the probe's first counter.
    pub const SLOT: u64 = TABLE + PARTS as u64 * ENTRY;
    /// With [`PARTS`] entries: offset of the pointer to the return addresses.
    pub const CALLERS: u64 = SLOT + 4;
    /// In every second entry's code: the offset of the address to which the call returns.
    pub const RETURN: u64 = 4;
}
