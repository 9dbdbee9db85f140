//! What a trampoline that follows calls, and the agent that helps it, agree on.

/// Words of a probe that follows calls, from its slot on.
pub mod words {
    /// Entries that were followed.
    pub const CALLS: u32 = 0;
    /// Returns.
    pub const RETURNS: u32 = 1;
    /// Frames that were left without a return.
    pub const LEFT: u32 = 2;
    /// All other entries: they are counted, and no more is known of them.
    pub const ONLY_COUNTED: u32 = 3;
    /// How many there are where calls are not timed.
    pub const UNTIMED: u32 = 4;
    /// Nanoseconds from entry to return.
    pub const TOTAL: u32 = 4;
    /// The same less those in followed callees.
    pub const OWN: u32 = 5;
    /// The longest call.
    pub const LONGEST: u32 = 6;
    /// Which of the counts of durations is one too few: the last call's is added when the next one
    /// ends, as an increment of a word that depends on a time just taken stalls what follows.
    /// The first of them is one too many then; at 0 all are right.
    pub const PENDING: u32 = 7;
    /// Calls by their duration: of no measurable time, and then the histogram's.
    pub const DURATIONS: u32 = 8;
    /// How many counts of durations there are.
    pub const DURATION_COUNT: u32 = 1 + tiptoe_event::HISTOGRAM_BUCKETS as u32;
    /// How many words there are where calls are timed: whole cache lines.
    pub const ALL: u32 = (DURATIONS + DURATION_COUNT).next_multiple_of(8);
}

/// Bytes of a frame.
pub const FRAME_BYTES: u8 = 32;
/// A probe's number is below this: it stands above the 47 bits of an address.
pub const MAX_PROBES: u32 = 1 << 17;
/// Extents of code that the agent is given at most.
pub const MAX_EXTENTS: usize = 1 << 10;
/// The table of thunks has this many entries, as a power of two.
pub const TABLE_BITS: u8 = 16;
/// The number of an entry: the upper bits of its key times this.
pub const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a hook is given at a function's entry, where it is given no system call's number.
pub mod intercepted {
    /// Set in all of these.
    pub const FUNCTION: u32 = 1 << 30;
    /// `_dl_find_object`.
    pub const FIND_OBJECT: u32 = 0;
    /// `dl_iterate_phdr`.
    pub const ITERATE: u32 = 1;
    /// A function that looks at whom it returns to: `dlsym`, `dlopen` and their like.
    pub const LOOKER: u32 = 2;
    /// What the loader calls when its list of libraries changes.
    pub const CHANGED: u32 = 1 << 15;
    /// `_Unwind_Backtrace` of the first unwinder; those of the others follow.
    pub const BACKTRACE: u32 = 3;
    /// `longjmp` and its like, while there is a gate.
    pub const JUMP: u32 = 1 << 16;
    /// `_Unwind_SetIP` of the first unwinder, while there is a gate; those of the
    /// others follow.
    pub const LAND: u32 = JUMP + 1;
}

/// What the slow entry answers for a call that the trampoline follows by itself, by the first of
/// its ways; of the next one more. 0 where it is not followed, and else the address of a return
/// thunk.
pub const BY_ITSELF: u64 = 1;
/// Slots of probes that follow calls are below this, so that they leave room for the
/// flags below in what the agent's slow entry is given.
pub const MAX_SLOT: u32 = 1 << 26;
/// Calls are timed.
pub const TIMED: i32 = 1 << 26;
/// The thread has no counters; nothing is counted yet.
pub const UNCOUNTED: i32 = 1 << 27;
/// A return that is not that of the uppermost frame.
pub const RETURNING: i32 = 1 << 28;
/// A call of `--under`'s function: its thread is below it until it ends.
pub const GATE: i32 = 1 << 29;
/// To the cold entry: the hit is to be recorded.
pub const RECORDS: i32 = 1 << 28;
/// To the cold entry: hits are told apart by a value, which only the trampoline knows; the
/// thread gets its counters, and where it gets none the hit is counted as one.
pub const VALUED: i32 = 1 << 29;
/// Only threads that are below such a call count; the cold entry is told so, too.
pub const UNDER: i32 = 1 << 30;
