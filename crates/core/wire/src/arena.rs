//! What planner and agent agree on about an arena: 64 KiB for trampolines, and what
//! unwinders are told of these.
//!
//! | offset | content |
//! | --- | --- |
//! | 0 | the gate page, which a forked child finds wiped |
//! | [`PROLOGUE`] | the ways to the agent; behind them what unwinders are told of these |
//! | behind that | trampolines from below; from above what unwinders are told of each |
//! | [`INDEX`] | where that is, two bytes for each block of [`BLOCK`] |
//! | [`CALLERS`] | where the first calls of each trampoline that follows calls came from |

/// The length, and the alignment, of an arena.
pub const LEN: u64 = 0x1_0000;
/// Where the ways to the agent are.
pub const PROLOGUE: u64 = 0x1000;
/// What unwinders are told of them.
pub const PROLOGUE_TOLD: u64 = PROLOGUE + 80;
/// Where the index is: [`LEN`] / [`BLOCK`] numbers of two bytes. For a block in which a
/// trampoline begins: where what unwinders are told of it is, in units of [`UNIT`]; else 0.
pub const INDEX: u64 = 0xf000;
/// Where the words are that the agent writes: for each [`SPAN`] as many as [`WAYS`], the return
/// addresses of the calls that the trampoline beginning there follows by itself; 0 before there
/// was such a call. They never change then, as calls may return by them at any later time.
pub const CALLERS: u64 = 0xf800;
/// How many return addresses a trampoline has of its own.
pub const WAYS: usize = 2;
/// Each trampoline with such words is at least as long as this, so that its words are its own.
pub const SPAN: u64 = 512;
// They share a page with the index, which they fill.
const _: () = assert!(LEN / SPAN * WAYS as u64 * 8 == LEN - CALLERS);
const _: () = assert!(LEN / BLOCK * 2 == CALLERS - INDEX && LEN - INDEX == 0x1000);
/// No trampoline takes fewer bytes than a block has, so that only one begins in each.
pub const BLOCK: u64 = 64;
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

/// The word for one of the return addresses of the calls that a trampoline follows by itself.
pub const fn caller(trampoline: u64, way: usize) -> u64 {
    let first = trampoline % LEN / SPAN * WAYS as u64;
    base(trampoline) + CALLERS + (first + way as u64) * 8
}

/// The description of a range of code, as the words of `.eh_frame_hdr` and `.eh_frame`
/// that an unwinder reads. Of a trampoline that follows calls by itself it has [`told::PARTS`]
/// entries, of which every second is of where some of these return; of all others it has one.
pub mod told {
    /// Where the number of entries stands.
    pub const ENTRIES: u64 = 8;
    /// Where the first entry is: the first address of its code, and its FDE, both from the
    /// beginning of all this. The code of one ends where that of the next begins.
    pub const TABLE: u64 = 12;
    /// Bytes of an entry.
    pub const ENTRY: u64 = 8;
    /// Where in an FDE the number of bytes stands.
    pub const COUNT: u64 = 12;
    /// Entries where calls are followed.
    pub const PARTS: u32 = 1 + 2 * super::WAYS as u32;
    /// Where what is known of the calls stands then: the first of the probe's words.
    pub const SLOT: u64 = TABLE + PARTS as u64 * ENTRY;
    /// From the beginning of such a part to where its calls return.
    pub const RETURN: u64 = 4;
}
