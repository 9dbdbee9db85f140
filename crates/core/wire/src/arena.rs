//! The layout of an arena: 64 KiB for trampolines, with the unwind information for them.
//!
//! | offset | content |
//! | --- | --- |
//! | [`PROLOGUE`] | the entries to the agent; after them their unwind information, and two addresses |
//! | after that | trampolines, upwards; from the end, downwards, the unwind information of each |
//! | [`INDEX`] | where the unwind information of each trampoline is, two bytes for each block of [`BLOCK`] |
//!
//! In every second arena these offsets are rotated by [`LEN`] / 2 ([`rotation`]). A jump that must
//! keep the first bytes of the code that it replaces leads to one offset, in any arena. So no
//! offset may be reserved in all of them.
//!
//! An arena is read-only. What a trampoline writes is elsewhere: in the counters of its thread, and
//! in the [`CALLER_BYTES`] of its own.

/// The length and alignment of an arena.
pub const LEN: u64 = 0x1_0000;
/// Offset of the entries to the agent.
pub const PROLOGUE: u64 = 0;
/// Distance from the entries to their unwind information.
pub const PROLOGUE_UNWIND: u64 = 80;
/// Offset of the index: [`LEN`] / [`BLOCK`] numbers of two bytes. A block in which a trampoline
/// begins has the offset of its unwind information, in units of [`UNIT`]; others have 0.
pub const INDEX: u64 = 0xf800;
const _: () = assert!(INDEX + LEN / BLOCK * 2 == LEN);
/// How many return addresses a trampoline that follows calls has: those of the first calls that it
/// follows by itself, each 0 before that call. Once set, an address must never change, because a
/// call may return through it at any later time.
pub const WAYS: usize = 2;
/// Bytes of these return addresses.
pub const CALLER_BYTES: u64 = 8 * WAYS as u64;
/// The least length of a trampoline, so that at most one begins in each block.
pub const BLOCK: u64 = 64;
/// The alignment of unwind information, and the unit of its length.
pub const UNIT: u64 = 16;

/// Returns the arena of an address.
pub const fn base(address: u64) -> u64 {
    address & !(LEN - 1)
}

/// Returns by how many bytes the layout of an arena is rotated. `address` is anywhere in the arena.
pub const fn rotation(address: u64) -> u64 {
    address / LEN % 2 * (LEN / 2)
}

/// Returns the address of the entries to the agent, in the arena that contains an address.
pub const fn prologue(address: u64) -> u64 {
    base(address) + PROLOGUE + rotation(address)
}

/// Returns the address of the index entry of the trampoline at an address.
pub const fn entry(trampoline: u64) -> u64 {
    base(trampoline) + (INDEX + rotation(trampoline)) % LEN + trampoline % LEN / BLOCK * 2
}

/// Unwind information of a range of code, as words of `.eh_frame_hdr` and `.eh_frame`. A trampoline
/// that follows calls by itself has [`unwind_info::PARTS`] entries, every second of which describes
/// the code where some of these calls return. Others have one entry.
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
    /// Offset, in that case, of the address of the return addresses, [`super::WAYS`] words.
    pub const CALLERS: u64 = SLOT + 4;
    /// Offset from the start of such a part to where its calls return.
    pub const RETURN: u64 = 4;
}
