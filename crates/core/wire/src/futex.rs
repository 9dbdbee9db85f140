//! The layout of lock contention data in the *slabs*, each a thread's counters. The data begins at the session's lock
//! slot (counter number). Times are in ticks of the time stamp counter unless stated.
//!
//! A thread's words are the [`head`], the cached [`path`]s, and [`ENTRIES`] [`entry`]s. Only the thread and its signal
//! handlers write there; tiptoe writes only [`head::GAP`] and [`activity::SINCE`]. A handler may interrupt anywhere,
//! so each change must be a single instruction. Slab 0 holds what all threads share: [`UNSEEN`], [`RELEASED`],
//! [`segment`], [`board`], [`history`], [`frames`].
//!
//! A *notice* is the number that the code around a patched futex call passes to the *hook*, tiptoe's code in the
//! target.

/// Entries per thread, a page each.
pub const ENTRIES: u32 = if cfg!(tiptoe_loom) { 3 } else { 288 };
/// Words of an entry, and of the [`head`].
pub const ENTRY_WORDS: u32 = 512;
/// Words of a slab's lock contention data.
pub const WIDTH: u32 = (ENTRIES + 1) * ENTRY_WORDS;
/// Futex calls by threads without a slab.
pub const UNSEEN: u32 = WIDTH - 1;
/// When the lock of `--hold`, whose hold times are measured, was last released. Unused for rwlocks, which may have
/// several holders.
pub const RELEASED: u32 = UNSEEN - 1;

/// Where the session's slabs are. These words share a cache line with the first words of [`frames`], because each hook
/// reads both.
pub mod segment {
    /// The first slab's address.
    pub const BEGIN: u32 = super::board::WORDS << super::board::BITS;
    /// The last slab's end.
    pub const END: u32 = BEGIN + 1;
    /// Byte offset of a thread's words in its slab.
    pub const OFFSET: u32 = BEGIN + 2;
}

/// Notice: the hook runs after the call.
pub const AFTER: i32 = 1 << 30;
/// Notice: no hook runs after the call, so waits are only counted.
pub const UNTIMED: i32 = 1 << 29;
/// Notice: bits for one of [`hold`], if the function takes or releases the lock of `--hold`.
pub const HOLD: i32 = 7 << 26;
/// Notice: the call is in a rwlock function.
pub const RWLOCK: i32 = i32::MIN;
/// Notice: the `tiptoe_stack::Rule` that finds the function's caller.
pub const RULE: i32 = (1 << 26) - 1;

/// The operation of a wait that a library reports (`tiptoe-port`). Its [`entry::VIA`] has the number of the lock's name
/// and mode.
pub const REPORTED: u32 = 0x7e;
/// The position of the lock's mode, eight bits, in that [`entry::VIA`].
pub const REPORTED_MODE_SHIFT: u32 = 48;

/// What a function does with a lock.
pub mod hold {
    /// Takes the lock.
    pub const TAKES: i32 = 1 << 26;
    /// Tries to take the lock; the hook does not read the result.
    pub const TRIES: i32 = 2 << 26;
    /// Releases the lock.
    pub const GIVES: i32 = 3 << 26;
    /// Releases its second argument, the lock, to wait for a condition.
    pub const LEAVES: i32 = 4 << 26;
    /// Takes the lock by spinning, perhaps with a call for each try.
    pub const SPINS: i32 = 5 << 26;
    /// Releases a lock that only one thread can hold.
    pub const FREES: i32 = 6 << 26;
}

/// Notice: the call is in a mutex function. No constant of [`hold`] has this value.
pub const MUTEX: i32 = HOLD;

/// The first words of a thread.
pub mod head {
    /// The value of [`WAITS`] at which the next wait is timed.
    pub const NEXT: u32 = 0;
    /// Low half: the thread's id. High half: bits 2 to 33 of the address of the lock that the thread took after a
    /// sleep and still holds, or 0.
    pub const THREAD: u32 = 1;
    /// Calls that may wait.
    pub const WAITS: u32 = 2;
    /// Calls that wake.
    pub const WAKES: u32 = 3;
    /// The current *episode*, one contended lock call by the user's code. Three words: the awaited address or 0, the
    /// call site, [`EPISODE_FRAME`].
    pub const EPISODE: u32 = 4;
    /// The caller's frame. The word stays after the episode, because tiptoe finds the thread's stack by this address.
    pub const EPISODE_FRAME: u32 = EPISODE + 2;
    /// The measured hold, five words: the lock or 0; the call site that took the lock; that call's frame; the time of
    /// that call, or 0; the depth of recursion.
    pub const MEASURED_HOLD: u32 = 7;
    /// Mean of the random number of waits that are skipped between timed waits.
    pub const GAP: u32 = 12;
    /// The next timed wait's weight, the number of waits for which it counts; 0 while every wait is timed.
    pub const NEXT_WEIGHT: u32 = 13;
    /// State of the random number generator of gaps.
    pub const SEED: u32 = 14;
    /// Calls that found no free entry.
    pub const FULL: u32 = 15;
    /// Each [`super::activity`]'s stack pointer; 0 if free.
    pub const SPS: u32 = 16;
    /// The activities' further words.
    pub const ACTIVITIES: u32 = SPS + super::activity::DEPTH;
}

/// A wait in progress.
pub mod activity {
    /// The most nested waits: a signal handler may wait during a wait.
    pub const DEPTH: u32 = 8;
    /// Words of an activity.
    pub const WORDS: u32 = 8;
    /// The awaited address.
    pub const ADDRESS: u32 = 0;
    /// The user's call site.
    pub const SITE: u32 = 1;
    /// The return address in libc.
    pub const VIA: u32 = 2;
    /// When the wait began; for a skipped wait, the wait's number with [`SKIPPED`].
    pub const SINCE: u32 = 3;
    /// Sampling skipped the wait, so the clock was not read.
    pub const SKIPPED: u64 = 1 << 62;
    /// tiptoe saw the wait in progress twice. Such a long wait has weight 1, because a larger weight would distort the
    /// sums. If sampling skipped the wait, [`SINCE`] is approximate.
    pub const GOES_ON: u64 = 1 << 63;
    /// The futex operation, or [`super::REPORTED`]; above it the lock's kind (`tiptoe-futex`, `calls`).
    pub const OPERATION: u32 = 4;
    /// Start of the user's frame.
    pub const FRAME: u32 = 5;
    /// The checksum in the futex's [`super::board`] cell when the wait began.
    pub const SEEN: u32 = 6;
    /// For a reported wait: the last futex on which the thread waited, to whose board cell [`SEEN`] belongs. For a lock
    /// that records its holder: the counts of the lock's ring (low half) and family (high half) in [`super::history`]
    /// when the wait began.
    pub const WITHIN: u32 = 7;
}

/// A cached path from libc's wait through the runtime libraries to the user's call site.
pub mod path {
    /// The first slot. A path's slot is found by a hash of the first return address.
    pub const PATHS: u32 = 128;
    /// Bits of a hash.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 1 } else { 5 };
    /// Slots searched.
    pub const LOOKS: u32 = 2;
    /// Words of a slot: a cache line.
    pub const WORDS: u32 = 8;
    /// The first return address; above it the number of libraries then known; 0 if the slot is free.
    pub const FIRST: u32 = 0;
    /// Position of the number of known libraries.
    pub const COUNT_SHIFT: u32 = 56;
    /// The last return address, the user's; 0 if the path is incomplete, too long, or depends on other registers than
    /// the stack pointer.
    pub const USER: u32 = 1;
    /// The last return address in libc, or 0; above it the kind of lock ([`super::frames::owner`]).
    pub const VIA: u32 = 2;
    /// The later frames' distances from the first frame, in words; 0 after the last frame.
    pub const DISTANCES: u32 = 3;
    /// Bits of a distance.
    pub const DISTANCE_BITS: u32 = 16;
    /// The return addresses between the first and the last.
    pub const OTHERS: u32 = 4;
    /// The most return addresses in [`OTHERS`].
    pub const MOST: u32 = 3;
}

/// A thread's futex calls by address and call site.
pub mod entry {
    /// The futex's address.
    pub const ADDRESS: u32 = 0;
    /// The user's call site.
    pub const SITE: u32 = 1;
    /// The return address in libc or in tiptoe's trampoline; above it the operation.
    pub const VIA: u32 = 2;
    /// All calls.
    pub const CALLS: u32 = 3;
    /// Waits that another thread ended.
    pub const WOKEN: u32 = 4;
    /// Waits that returned at once, because the futex word had changed.
    pub const AT_ONCE: u32 = 5;
    /// Contended calls of the user.
    pub const EPISODES: u32 = 6;
    /// The thread's node in the tree of scopes.
    pub const SCOPE: u32 = 7;
    /// Waits that a signal ended.
    pub const INTERRUPTED: u32 = 8;
    /// Other calls: errors and untimed calls.
    pub const OTHER: u32 = 9;
    /// Nanoseconds in all waits but [`AT_ONCE`]. In this sum, in [`DURATIONS`] and in [`WAKERS`], a timed wait counts
    /// with its weight.
    pub const SLEPT_NS: u32 = 10;
    /// Timed waits that did not end with an error.
    pub const TIMED: u32 = 11;
    /// The longest wait in nanoseconds.
    pub const LONGEST: u32 = 12;
    /// Waits ended by call sites without room in [`WAKERS`].
    pub const OTHER_WAKERS: u32 = 13;
    /// For rwlocks: the sum of the readers that each wait found.
    pub const READERS: u32 = 14;
    /// For rwlocks: the most readers that a wait found.
    pub const MOST_READERS: u32 = 15;
    /// Call sites that ended this entry's waits, three words each: site, waits, nanoseconds.
    pub const WAKERS: u32 = 16;
    /// The most call sites in [`WAKERS`].
    pub const WAKER_COUNT: u32 = 10;
    /// Words of a waker.
    pub const WAKER_WORDS: u32 = 3;
    /// Waits that timed out.
    pub const TIMED_OUT: u32 = WAKERS + WAKER_COUNT * WAKER_WORDS;
    /// Waits that never returned, because the thread was cancelled or jumped out.
    pub const LEFT: u32 = TIMED_OUT + 1;
    /// All waits but [`AT_ONCE`] by duration: first those without measurable time, then the histogram's buckets.
    pub const DURATIONS: u32 = 64;
    /// A reported lock's name: the length in bytes, then the bytes.
    pub const NAME: u32 = 416;
    /// The most words of the name's bytes.
    pub const NAME_WORDS: u32 = 12;
    /// Holders during this entry's waits, three words each: a [`super::holder`], waits, nanoseconds.
    pub const HOLDERS: u32 = 430;
    /// The most holders in [`HOLDERS`].
    pub const HOLDER_COUNT: u32 = 26;
    /// Words of a holder.
    pub const HOLDER_WORDS: u32 = 3;
}

/// The holder during another thread's wait. A word without flags is the call site that released the lock.
pub mod holder {
    /// A thread, whose id is in the low half.
    pub const THREAD: u64 = 1 << 63;
    /// The readers of a rwlock.
    pub const READERS: u64 = 1 << 62;
    /// Unknown threads: the lock was found free, and threads that take a free lock are not recorded.
    pub const UNSEEN: u64 = 1 << 61;
    /// Nothing is known about the holder.
    pub const UNKNOWN: u64 = 1 << 60;
}

/// In [`entry::VIA`]: the position of the operation's seven bits.
pub const OPERATION_SHIFT: u32 = 56;
/// The [`entry::VIA`] of an entry with hold times instead of waits. No operation has this number.
pub const HOLDS: u64 = 0x7f << OPERATION_SHIFT;

/// Cells with the last wake at each address, found by the address's hash.
pub mod board {
    /// Log2 of the cells.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 2 } else { 12 };
    /// Words of a cell: a cache line.
    pub const WORDS: u32 = 8;
    /// The wake's unique number.
    pub const STAMP: u32 = 0;
    /// The address.
    pub const ADDRESS: u32 = 1;
    /// The user's call site.
    pub const SITE: u32 = 2;
    /// Checksum of the other words, by which a reader detects a torn cell.
    pub const SUM: u32 = 3;
}

/// Rings of hand-overs (a lock's changes of holder), found by the lock's hash (`tiptoe-futex`, `history`).
pub mod history {
    /// Log2 of the rings.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 0 } else { 4 };
    /// Hand-overs in a ring.
    pub const COUNT: u32 = if cfg!(tiptoe_loom) { 2 } else { 256 };
    /// Words of a hand-over.
    pub const WORDS: u32 = 4;
    /// The time.
    pub const AT: u32 = 0;
    /// The new holder in the lower [`HOLDER`] bits: a thread, [`READERS`], [`NOBODY`], or 0 if unknown. Above these
    /// bits: the thread that released the lock, and [`OWN`].
    pub const WHO: u32 = 1;
    /// The call site that released the lock.
    pub const SITE: u32 = 2;
    /// Checksum of the other words, the hand-over's number, and the lock's address.
    pub const SUM: u32 = 3;
    /// Number of bits of the new holder in [`WHO`].
    pub const HOLDER: u32 = 24;
    /// Readers hold the lock.
    pub const READERS: u32 = 1 << 22;
    /// No thread holds the lock.
    pub const NOBODY: u32 = 1 << 23;
    /// The recording thread itself took the lock.
    pub const OWN: u64 = 1 << 48;
    /// Number of families into which a hash divides a ring's locks. A ring begins with a cache line of counts: all
    /// hand-overs, then each family's.
    pub const FAMILIES: u32 = 7;
    /// Words of a ring.
    pub const RING_WORDS: u32 = 1 + FAMILIES + COUNT * WORDS;
    /// The first ring.
    pub const RINGS: u32 = (super::RELEASED - (RING_WORDS << BITS)) & !7;
}

/// How to unwind the functions of runtime libraries, such as libc. Hooks may read these words after the session.
pub mod frames {
    /// Start of all libraries' code.
    pub const BEGIN: u32 = super::segment::OFFSET + 1;
    /// End of all libraries' code.
    pub const END: u32 = BEGIN + 1;
    /// Number of libraries.
    pub const COUNT: u32 = END + 1;
    /// The first [`library`] of [`LIBRARIES`].
    pub const FIRST: u32 = super::segment::BEGIN + 8;
    /// The most libraries.
    pub const LIBRARIES: u32 = if cfg!(tiptoe_loom) { 2 } else { 16 };
    /// libc's functions that wait for locks with a recorded holder, two words each: start; end (0 if free), with an
    /// [`owner`] above.
    pub const OWNERS: u32 = FIRST + LIBRARIES * library::WORDS;
    /// The most functions in [`OWNERS`].
    pub const OWNER_COUNT: u32 = if cfg!(tiptoe_loom) { 1 } else { 32 };
    /// Words of a function.
    pub const OWNER_WORDS: u32 = 2;
    /// Position of an [`owner`].
    pub const OWNER_SHIFT: u32 = 56;

    /// What a function in [`OWNERS`] waits for.
    pub mod owner {
        /// A mutex, which begins with its futex.
        pub const MUTEX: u64 = 1;
        /// A condition, and then the condition's mutex.
        pub const CONDITION: u64 = 2;
        /// A rwlock.
        pub const RWLOCK: u64 = 3;
    }

    /// Cached searches for a return address, found by the address's hash, two words each: the address; its rule with
    /// the flags below.
    pub const CACHE: u32 = OWNERS + OWNER_COUNT * OWNER_WORDS;
    /// Bits of a hash.
    pub const CACHE_BITS: u32 = if cfg!(tiptoe_loom) { 1 } else { 12 };
    /// Slots searched.
    pub const LOOKS: u32 = if cfg!(tiptoe_loom) { 2 } else { 8 };
    /// The address is in libc.
    pub const CACHED_LIBC: u64 = 1 << 32;
    /// A thread took the slot, and may still be filling it.
    pub const CACHED_TAKEN: u64 = 1 << 33;
    /// The address is in a [`library::MIXED`] library: with a rule, in the standard library's code, otherwise in the
    /// user's.
    pub const CACHED_MIXED: u64 = 1 << 34;
    /// Rows of unwinding rules, by address, for `tiptoe_stack::find`.
    pub const ROWS: u32 = CACHE + 2 * ((1 << CACHE_BITS) + LOOKS);
    /// The most rows.
    pub const MOST_ROWS: u32 = super::history::RINGS - ROWS;

    /// A runtime library, whose frames a walk to the user's call site must skip.
    pub mod library {
        /// The code's end; 0 if the entry is unused.
        pub const END: u32 = 0;
        /// The code's start.
        pub const START: u32 = 1;
        /// What the loader adds to the library's addresses.
        pub const BASE: u32 = 2;
        /// The index of the first row; from bit 32 on the number of rows, and flags.
        pub const ROWS: u32 = 3;
        /// Words of a library.
        pub const WORDS: u32 = 4;
        /// The library is libc, whose functions show the kind of lock.
        pub const LIBC: u64 = 1 << 63;
        /// The library is the user's. It has rows only for the standard library's code compiled into it.
        pub const MIXED: u64 = 1 << 62;
    }
}

const _: () = {
    assert!(head::ACTIVITIES + activity::DEPTH * activity::WORDS <= path::PATHS);
    assert!(path::PATHS + ((1 << path::BITS) + path::LOOKS) * path::WORDS <= ENTRY_WORDS);
    assert!(path::OTHERS + path::MOST <= path::WORDS);
    assert!((path::MOST + 1) * path::DISTANCE_BITS <= u64::BITS);
    assert!(entry::LEFT < entry::DURATIONS);
    assert!(entry::DURATIONS + 1 + tiptoe_event::HISTOGRAM_BUCKETS as u32 <= entry::NAME);
    assert!(entry::NAME + 1 + entry::NAME_WORDS <= entry::HOLDERS);
    assert!(entry::HOLDERS + entry::HOLDER_COUNT * entry::HOLDER_WORDS <= ENTRY_WORDS);
    assert!(activity::WITHIN < activity::WORDS);
    assert!(frames::COUNT < frames::FIRST && frames::ROWS < history::RINGS);
};
