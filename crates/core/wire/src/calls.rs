//! What trampolines that follow calls share with the agent that helps them.

/// Words of a probe that follows calls, from its slot on.
pub mod words {
    /// The number of followed calls that began.
    pub const CALLS: u32 = 0;
    /// The number of calls that returned.
    pub const RETURNS: u32 = 1;
    /// The number of frames that ended without a return.
    pub const LEFT: u32 = 2;
    /// The number of other calls, which are only counted.
    pub const ONLY_COUNTED: u32 = 3;
    /// The number of words if calls are not timed.
    pub const UNTIMED: u32 = 4;
    /// Nanoseconds from entry to return.
    pub const TOTAL: u32 = 4;
    /// Nanoseconds from entry to return, less those in followed callees.
    pub const OWN: u32 = 5;
    /// The longest call, in nanoseconds.
    pub const LONGEST: u32 = 6;
    /// The index of the count of durations that lacks the last call, which is in the first count
    /// instead; 0 if none lacks it. The call moves to its own count when the next one ends, because
    /// an increment that depends on a time just read would stall the code after it.
    pub const PENDING: u32 = 7;
    /// Calls by duration: first those without measurable time, then one word for each bucket of the
    /// histogram.
    pub const DURATIONS: u32 = 8;
    /// The number of counts of durations.
    pub const DURATION_COUNT: u32 = 1 + tiptoe_event::HISTOGRAM_BUCKETS as u32;
    /// The number of words if calls are timed: whole cache lines.
    pub const ALL: u32 = (DURATIONS + DURATION_COUNT).next_multiple_of(8);
}

/// Bytes of a frame.
pub const FRAME_BYTES: u8 = 32;
/// Upper bound of probe numbers, stored above an address's 47 bits.
pub const MAX_PROBES: u32 = 1 << 17;
/// The most extents of code that the agent gets.
pub const MAX_EXTENTS: usize = 1 << 10;
/// Log2 of the entries of the thunk table.
pub const TABLE_BITS: u8 = 16;
/// Multiplier that hashes keys; the product's upper bits are the entry.
pub const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// The most return thunks of a process.
pub const MAX_THUNKS: usize = 1 << 17;
/// Bytes from one return thunk's code to the next.
pub const THUNK_BYTES: usize = 32;
/// Bytes of the code of all return thunks. Each thunk's record is this far after its code.
pub const THUNK_CODE: usize = MAX_THUNKS * THUNK_BYTES;
/// The code of a return thunk, equal for all because their records are equally far: `pop %rdx; pop
/// %rcx; pop %rax; lea 8(%rsp),%rsp; call *CALLS(%rip); push TO(%rip); jmp *EXIT(%rip)`.
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

/// Arguments of a hook at a function's entry, in place of a system call's number.
pub mod intercepted {
    /// The bit that is set in each argument of this module.
    pub const FUNCTION: u32 = 1 << 30;
    /// `_dl_find_object`.
    pub const FIND_OBJECT: u32 = 0;
    /// `dl_iterate_phdr`.
    pub const ITERATE: u32 = 1;
    /// A function that inspects its return address: `dlsym`, `dlopen` and similar.
    pub const LOOKER: u32 = 2;
    /// `_Unwind_ForcedUnwind` of the first unwinder; that of unwinder N has `FORCED + N`.
    pub const FORCED: u32 = 1 << 14;
    /// What the loader calls when its list of libraries changes.
    pub const CHANGED: u32 = 1 << 15;
    /// `_Unwind_Backtrace` of the first unwinder; that of unwinder N has `BACKTRACE + N`.
    pub const BACKTRACE: u32 = 3;
    /// `longjmp` and similar functions. Hooked only with `--under`.
    pub const JUMP: u32 = 1 << 16;
    /// `_Unwind_SetIP` of the first unwinder; that of unwinder N has `LAND + N`. Hooked only with `--under`.
    pub const LAND: u32 = JUMP + 1;
}

/// For the hook of a system call: the call is not the C library's, so the thread may be on a
/// thread-local block that has none of our words.
pub const NOT_LIBCS: u32 = 1 << 29;

/// The slow entry's result for a call that the trampoline follows by itself, through its first return address; for its
/// second return address the result is one more. Otherwise the result is the address of a return thunk, or 0 if the
/// call is not followed.
pub const BY_ITSELF: u64 = 1;
/// Upper bound of slots of probes that follow calls; the flags below need the higher bits.
pub const MAX_SLOT: u32 = 1 << 26;
/// Calls are timed.
pub const TIMED: i32 = 1 << 26;
/// The thread has no counters yet, so nothing was counted.
pub const UNCOUNTED: i32 = 1 << 27;
/// A return that is not from the uppermost frame.
pub const RETURNING: i32 = 1 << 28;
/// A call of `--under`'s function. Its thread counts until the call ends.
pub const GATE: i32 = 1 << 29;
/// For the cold entry: the hit must be recorded.
pub const RECORDS: i32 = 1 << 28;
/// For the cold entry: hits are grouped by a value that only the trampoline knows. The thread gets
/// its counters; failing that, the hit counts without its value.
pub const VALUED: i32 = 1 << 29;
/// Only threads inside a call of `--under`'s function count. Also passed to the cold entry.
pub const UNDER: i32 = 1 << 30;
