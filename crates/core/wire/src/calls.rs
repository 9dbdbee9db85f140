//! What trampolines (generated code at patched places) share with the agent (tiptoe's library in the target), mainly to
//! *follow* calls until they return.

/// The counters of a probe that follows calls.
pub mod words {
    /// Followed calls that have begun.
    pub const CALLS: u32 = 0;
    /// Calls that returned.
    pub const RETURNS: u32 = 1;
    /// Calls that ended without a return.
    pub const LEFT: u32 = 2;
    /// Calls that were counted, not followed.
    pub const ONLY_COUNTED: u32 = 3;
    /// Number of words if calls are not timed.
    pub const UNTIMED: u32 = 4;
    /// Nanoseconds from entry to return.
    pub const TOTAL: u32 = 4;
    /// Nanoseconds from entry to return, without the time in followed callees.
    pub const OWN: u32 = 5;
    /// The longest call in nanoseconds.
    pub const LONGEST: u32 = 6;
    /// The last call's index in [`DURATIONS`], or 0. Until the next call ends, this call is counted at index 0,
    /// because an increment at an index just computed from the clock would stall.
    pub const PENDING: u32 = 7;
    /// Calls by duration: first those without measurable time, then the histogram's buckets.
    pub const DURATIONS: u32 = 8;
    /// Number of duration counts.
    pub const DURATION_COUNT: u32 = 1 + tiptoe_event::HISTOGRAM_BUCKETS as u32;
    /// Number of words if calls are timed: whole cache lines.
    pub const ALL: u32 = (DURATIONS + DURATION_COUNT).next_multiple_of(8);
}

/// Bytes of a frame, the agent's record of a followed call.
pub const FRAME_BYTES: u8 = 32;
/// Bound of probe numbers. A key of the table of return thunks (code to which followed calls return) has an address in
/// 47 bits, and the number above.
pub const MAX_PROBES: u32 = 1 << 17;
/// The most pairs in [`crate::Request::Described`].
pub const MAX_EXTENTS: usize = 1 << 10;
/// Log2 of the entries of the thunk table.
pub const TABLE_BITS: u8 = 16;
/// A key's hash is the upper bits of its product with this number.
pub const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// The most return thunks.
pub const MAX_THUNKS: usize = 1 << 17;
/// Bytes of a return thunk's code.
pub const THUNK_BYTES: usize = 32;
/// Bytes of all return thunks' code, which is the distance from a thunk to its record.
pub const THUNK_CODE: usize = MAX_THUNKS * THUNK_BYTES;
/// A return thunk's code: `pop %rdx; pop %rcx; pop %rax; lea 8(%rsp),%rsp; call *CALLS(%rip); push TO(%rip); jmp
/// *EXIT(%rip)`.
pub const THUNK: [u8; THUNK_BYTES] = thunk();

const fn thunk() -> [u8; THUNK_BYTES] {
    let [a, b, c, d] = (THUNK_CODE as i32 + 8 - (8 + 6)).to_le_bytes();
    let [e, f, g, h] = (THUNK_CODE as i32 - (14 + 6)).to_le_bytes();
    let [i, j, k, l] = (THUNK_CODE as i32 + 16 - (20 + 6)).to_le_bytes();
    const TRAP: u8 = 0xcc;
    [
        0x5a, 0x59, 0x58, 0x48, 0x8d, 0x64, 0x24, 8, 0xff, 0x15, a, b, c, d, 0xff, 0x35, e, f, g,
        h, 0xff, 0x25, i, j, k, l, TRAP, TRAP, TRAP, TRAP, TRAP, TRAP,
    ]
}

/// Numbers that the agent's hook gets at a function's entry, in place of a system call's number. Unwinder N adds N to
/// the first unwinder's numbers.
pub mod intercepted {
    /// Set in each of these numbers.
    pub const FUNCTION: u32 = 1 << 30;
    /// `_dl_find_object`.
    pub const FIND_OBJECT: u32 = 0;
    /// `dl_iterate_phdr`.
    pub const ITERATE: u32 = 1;
    /// A function that inspects its return address, as `dlsym` does.
    pub const LOOKER: u32 = 2;
    /// The first unwinder's `_Unwind_ForcedUnwind`.
    pub const FORCED: u32 = 1 << 14;
    /// The function that the loader calls when its list of libraries changes.
    pub const CHANGED: u32 = 1 << 15;
    /// The first unwinder's `_Unwind_Backtrace`.
    pub const BACKTRACE: u32 = 3;
    /// `longjmp` and similar functions, for `--under`, which counts only during calls of a function.
    pub const JUMP: u32 = 1 << 16;
    /// The first unwinder's `_Unwind_SetIP`, for `--under`.
    pub const LAND: u32 = JUMP + 1;
}

/// System call's hook: the call is not in libc, so the thread-local block may lack the agent's words.
pub const NOT_LIBCS: u32 = 1 << 29;

/// The result of the slow entry ([`crate::AgentAddresses`]) for a call from the trampoline's first known caller; 2 for
/// the second. The trampoline itself follows these calls. For other followed calls the result is a thunk's address, for
/// all other calls 0.
pub const BY_ITSELF: u64 = 1;
/// Bound of probes' slots (numbers of their first counters). An argument for the agent's entries has the slot in its
/// low 26 bits, and flags above.
pub const MAX_SLOT: u32 = 1 << 26;
/// Slow entry: calls are timed.
pub const TIMED: i32 = 1 << 26;
/// Slow entry: nothing was counted, because the thread has no counters yet.
pub const UNCOUNTED: i32 = 1 << 27;
/// Slow entry: a call returns in a way that the trampoline cannot handle. Without this flag a call begins.
pub const RETURNING: i32 = 1 << 28;
/// Slow entry: the call is of `--under`'s function.
pub const GATE: i32 = 1 << 29;
/// Cold entry: record the hit.
pub const RECORDS: i32 = 1 << 28;
/// Cold entry: hits are grouped by a value that only the trampoline knows. If the thread gets no counters, the hit
/// counts without its value.
pub const VALUED: i32 = 1 << 29;
/// Both entries: only threads inside `--under`'s function count.
pub const UNDER: i32 = 1 << 30;
