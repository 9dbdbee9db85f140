//! The layout of lock contention data in the slabs, from the session's lock slot on.
//!
//! A thread's slab has its [`head`], cached [`path`]s, and from [`ENTRY_WORDS`] on [`ENTRIES`] of
//! [`entry`]. Slab 0 has the [`board`], [`segment`], [`frames`] and [`UNSEEN`].
//!
//! | in slab 0 | words |
//! |---|---|
//! | the [`board`] | the last wake at each address |
//! | [`frames`] | how to leave the functions of the runtime's libraries |
//! | [`segment`] | where the slabs of this session are |
//! | [`history`] | which threads took locks for which others slept |
//! | [`RELEASED`] | when the lock of `--hold` was last released |
//! | [`UNSEEN`] | calls of threads without a slab |
//!
//! Only a thread and its signal handlers write its words, so each must be changed by a single
//! instruction. Cells of the board have many writers and a checksum.

/// Entries per thread: one page each, touched on first use. Few in models, where each word is
/// costly.
pub const ENTRIES: u32 = if cfg!(tiptoe_loom) { 3 } else { 288 };
/// Words of an entry. The thread's first block of this size is its [`head`].
pub const ENTRY_WORDS: u32 = 512;
/// Words of all lock contention data in a slab.
pub const WIDTH: u32 = (ENTRIES + 1) * ENTRY_WORDS;
/// In slab 0: the number of futex calls of threads without a slab.
pub const UNSEEN: u32 = WIDTH - 1;
/// In slab 0: when the lock whose hold times are measured was last released, in ticks. Not stored for a rwlock, which
/// several threads may hold.
pub const RELEASED: u32 = UNSEEN - 1;

/// In slab 0: where this session's slabs are in the target. Each hook reads these and some of
/// [`frames`], so they share a cache line.
pub mod segment {
    /// The address of the first slab.
    pub const BEGIN: u32 = super::board::WORDS << super::board::BITS;
    /// The end of the last slab.
    pub const END: u32 = BEGIN + 1;
    /// Byte offset of a thread's words from its slab.
    pub const OFFSET: u32 = BEGIN + 2;
}

/// In a notice: the hook runs after the call.
pub const AFTER: i32 = 1 << 30;
/// In a notice: no hook runs after the call, so a wait is only counted.
pub const UNTIMED: i32 = 1 << 29;
/// In a notice, at the entry of a function that takes or releases the lock whose hold times are
/// measured: one of [`hold`].
pub const HOLD: i32 = 7 << 26;
/// In a notice: the futex call is in a function of a rwlock.
pub const RWLOCK: i32 = i32::MIN;
/// In a notice: how to leave the function, a `tiptoe_stack::Rule`.
pub const RULE: i32 = (1 << 26) - 1;

/// The operation of a wait that the program's library reports itself. [`entry::VIA`] then holds the
/// lock's label.
pub const REPORTED: u32 = 0x7e;
/// Position in a reported wait's [`entry::VIA`] of how the lock is taken, in eight bits.
pub const REPORTED_MODE_SHIFT: u32 = 48;

/// What a function does with a lock.
pub mod hold {
    /// Takes it.
    pub const TAKES: i32 = 1 << 26;
    /// Takes it, or fails; the result is not read.
    pub const TRIES: i32 = 2 << 26;
    /// Releases it.
    pub const GIVES: i32 = 3 << 26;
    /// Releases it to wait for a condition. The lock is the second argument.
    pub const LEAVES: i32 = 4 << 26;
    /// Takes it by spinning, and may come back to the function's entry for each try.
    pub const SPINS: i32 = 5 << 26;
    /// Releases a lock that only one thread can hold.
    pub const FREES: i32 = 6 << 26;
}

/// In a notice, a value of [`HOLD`] that is none of [`hold`]: the futex call is in a function of a
/// mutex.
pub const MUTEX: i32 = HOLD;

/// The first words of a thread.
pub mod head {
    /// The number among [`WAITS`] of the next timed wait, drawn from [`GAP`]. Waits before it are
    /// only counted.
    pub const NEXT: u32 = 0;
    /// In the low half the thread's id. In the high half a quarter of the low half of the address of the lock that the
    /// thread took after a sleep and has not released, or 0: a wake reads both in one load.
    pub const THREAD: u32 = 1;
    /// The number of calls that may wait.
    pub const WAITS: u32 = 2;
    /// The number of calls that wake.
    pub const WAKES: u32 = 3;
    /// The current *episode*: one contended call of the user, which may wait several times. Three words: the address at
    /// which it waits, or 0; the call site; the start of the caller's frame.
    pub const EPISODE: u32 = 4;
    /// The start of the caller's frame. It stays when the episode ends, because tiptoe uses it as an address within the
    /// thread's stack.
    pub const EPISODE_FRAME: u32 = EPISODE + 2;
    /// The measured hold, five words: the lock or 0; the call site that took it; the start of that
    /// frame; since when in ticks, or 0; how many times it was taken. The first shares a cache line
    /// with the words before it.
    pub const MEASURED_HOLD: u32 = 7;
    /// The mean number of skipped waits between timed ones. tiptoe writes it.
    pub const GAP: u32 = 12;
    /// The weight of the next timed wait; 0 while each is timed.
    pub const NEXT_WEIGHT: u32 = 13;
    /// The state of the generator of gaps.
    pub const SEED: u32 = 14;
    /// The number of calls that found no room among the entries.
    pub const FULL: u32 = 15;
    /// The stack positions of [`super::activity::DEPTH`] activities; 0 for a free slot.
    pub const SPS: u32 = 16;
    /// The other words of each activity.
    pub const ACTIVITIES: u32 = SPS + super::activity::DEPTH;
}

/// A wait in progress.
pub mod activity {
    /// The most waits inside each other: signal handlers wait, too.
    pub const DEPTH: u32 = 8;
    /// Words of an activity.
    pub const WORDS: u32 = 8;
    /// The address that the thread waits at.
    pub const ADDRESS: u32 = 0;
    /// The user's call site.
    pub const SITE: u32 = 1;
    /// The return address in libc.
    pub const VIA: u32 = 2;
    /// When the wait began, in ticks; for a skipped wait its number, with [`SKIPPED`].
    pub const SINCE: u32 = 3;
    /// The wait is skipped: the clock was not read.
    pub const SKIPPED: u64 = 1 << 62;
    /// tiptoe saw the wait twice: it has weight 1. If it was skipped, tiptoe replaced its number by
    /// an approximate beginning.
    pub const GOES_ON: u64 = 1 << 63;
    /// The operation.
    pub const OPERATION: u32 = 4;
    /// The start of the user's frame.
    pub const FRAME: u32 = 5;
    /// The checksum of the [`super::board`] for the address when the wait began.
    pub const SEEN: u32 = 6;
    /// For a reported wait ([`super::REPORTED`]): the last futex inside it, whose checksum is [`SEEN`]. For a wait for
    /// a lock that records its holder: how many hand-overs there were when it began, those in the lock's ring in the
    /// low half, and those with the lock's [`super::history::FAMILIES`] in the high half.
    pub const WITHIN: u32 = 7;
}

/// A cached path through the runtime's libraries.
pub mod path {
    /// The first slot, by a hash of the first return address.
    pub const PATHS: u32 = 128;
    /// Log2 of the hashes.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 1 } else { 5 };
    /// How many slots are probed, from the hash on.
    pub const LOOKS: u32 = 2;
    /// Words of a slot: a cache line.
    pub const WORDS: u32 = 8;
    /// The first return address, and from bit [`COUNT_SHIFT`] on the number of known libraries; 0
    /// if free.
    pub const FIRST: u32 = 0;
    /// Position of that number.
    pub const COUNT_SHIFT: u32 = 56;
    /// The user's, last return address; 0 while the path is incomplete, if it is too long, or if
    /// not ruled by the stack pointer alone.
    pub const USER: u32 = 1;
    /// The last return address in libc, or 0; from bit [`super::frames::OWNER_SHIFT`] on its [`super::frames::owner`].
    pub const VIA: u32 = 2;
    /// Distances of the other frames from the first, in words, [`DISTANCE_BITS`] each; 0 after the
    /// last.
    pub const DISTANCES: u32 = 3;
    /// Bits of a distance.
    pub const DISTANCE_BITS: u32 = 16;
    /// The [`MOST`] return addresses between first and last.
    pub const OTHERS: u32 = 4;
    /// The most return addresses in between.
    pub const MOST: u32 = 3;
}

/// A thread's calls at one address from one call site.
pub mod entry {
    /// The address.
    pub const ADDRESS: u32 = 0;
    /// The user's call site.
    pub const SITE: u32 = 1;
    /// The return address in libc, or else our trampoline; from [`super::OPERATION_SHIFT`] on the
    /// operation.
    pub const VIA: u32 = 2;
    /// The number of calls.
    pub const CALLS: u32 = 3;
    /// The number of waits that another thread ended.
    pub const WOKEN: u32 = 4;
    /// The number of waits that returned at once, because the word had changed.
    pub const AT_ONCE: u32 = 5;
    /// The number of contended calls of the user; such a call may wait several times.
    pub const EPISODES: u32 = 6;
    /// The thread's scope node; in one cache line with the words that each call reads.
    pub const SCOPE: u32 = 7;
    /// The number of waits that a signal ended.
    pub const INTERRUPTED: u32 = 8;
    /// The number of other calls: errors, and calls that are not timed.
    pub const OTHER: u32 = 9;
    /// Nanoseconds in waits that did not return at once. This, [`DURATIONS`] and [`WAKERS`] count a
    /// timed wait with its weight.
    pub const SLEPT_NS: u32 = 10;
    /// How many of these waits were timed, without errors.
    pub const TIMED: u32 = 11;
    /// The longest wait.
    pub const LONGEST: u32 = 12;
    /// The number of waits ended by call sites that found no room in [`WAKERS`].
    pub const OTHER_WAKERS: u32 = 13;
    /// For rwlocks: the sum, over all waits, of the readers that held the lock when the wait began.
    pub const READERS: u32 = 14;
    /// For rwlocks: the largest number of readers that held the lock when a wait began.
    pub const MOST_READERS: u32 = 15;
    /// [`WAKER_COUNT`] call sites that ended waits: site, waits, their nanoseconds.
    pub const WAKERS: u32 = 16;
    /// The number of waker call sites.
    pub const WAKER_COUNT: u32 = 10;
    /// Words of a waker.
    pub const WAKER_WORDS: u32 = 3;
    /// The number of waits that timed out.
    pub const TIMED_OUT: u32 = WAKERS + WAKER_COUNT * WAKER_WORDS;
    /// The number of waits that never returned, because their thread was cancelled or jumped out of them.
    pub const LEFT: u32 = TIMED_OUT + 1;
    /// Waits that did not return at once, by duration: first those without measurable time, then one word for each
    /// bucket of the histogram.
    pub const DURATIONS: u32 = 64;
    /// For a reported wait ([`super::REPORTED`]): the lock's name, after its length in bytes.
    pub const NAME: u32 = 416;
    /// The most words of the name.
    pub const NAME_WORDS: u32 = 12;
    /// [`HOLDER_COUNT`] holders of the lock during these waits: a [`super::holder`], the number of waits, their
    /// nanoseconds.
    pub const HOLDERS: u32 = 430;
    /// The number of holders.
    pub const HOLDER_COUNT: u32 = 26;
    /// Words of a holder.
    pub const HOLDER_WORDS: u32 = 3;
}

/// The holder of a lock while another thread waited for it. A number below all of these is the call site that
/// released the lock.
pub mod holder {
    /// A thread, whose id is in the low half; its call site is unknown.
    pub const THREAD: u64 = 1 << 63;
    /// Threads that read.
    pub const READERS: u64 = 1 << 62;
    /// Unseen: a waiter woke up and found the lock free. Since the release, threads that did not wait may have held it.
    pub const UNSEEN: u64 = 1 << 61;
    /// Unknown.
    pub const UNKNOWN: u64 = 1 << 60;
}

/// Position of the operation in [`entry::VIA`], in seven bits.
pub const OPERATION_SHIFT: u32 = 56;
/// The whole [`entry::VIA`] of an entry of hold times; no operation has this number.
pub const HOLDS: u64 = 0x7f << OPERATION_SHIFT;

/// In slab 0: the last wake at each address, by a hash of the address.
pub mod board {
    /// Log2 of the cells.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 2 } else { 12 };
    /// Words of a cell: a cache line.
    pub const WORDS: u32 = 8;
    /// The unique number of the wake.
    pub const STAMP: u32 = 0;
    /// The address.
    pub const ADDRESS: u32 = 1;
    /// The user's call site.
    pub const SITE: u32 = 2;
    /// The checksum of the other words; a mismatch shows a torn cell.
    pub const SUM: u32 = 3;
}

/// In slab 0: rings of hand-overs, by a hash of the lock's address. See `tiptoe-futex`, `history`.
pub mod history {
    /// Log2 of the rings.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 0 } else { 4 };
    /// Hand-overs in a ring, of all its locks.
    pub const COUNT: u32 = if cfg!(tiptoe_loom) { 2 } else { 256 };
    /// Words of a hand-over.
    pub const WORDS: u32 = 4;
    /// The time of the hand-over, in ticks.
    pub const AT: u32 = 0;
    /// [`HOLDER`] bits for the thread that has the lock from then on, or [`READERS`], [`NOBODY`], or 0 if unknown;
    /// after them the thread that released it; and [`OWN`].
    pub const WHO: u32 = 1;
    /// The call site that released the lock.
    pub const SITE: u32 = 2;
    /// The checksum of the hand-over's other words, its number, and the lock's address.
    pub const SUM: u32 = 3;
    /// Bits of a thread in [`WHO`].
    pub const HOLDER: u32 = 24;
    /// The lock is held by threads that read.
    pub const READERS: u32 = 1 << 22;
    /// No thread holds the lock.
    pub const NOBODY: u32 = 1 << 23;
    /// The thread that recorded this took the lock itself.
    pub const OWN: u64 = 1 << 48;
    /// A ring begins with a cache line of counts: of all its hand-overs, and of those of each family of its locks.
    pub const FAMILIES: u32 = 7;
    /// Words of a ring: the counts and the hand-overs.
    pub const RING_WORDS: u32 = 1 + FAMILIES + COUNT * WORDS;
    /// The first ring.
    pub const RINGS: u32 = (super::RELEASED - (RING_WORDS << BITS)) & !7;
}

/// How to leave the functions of the runtime's libraries. In slab 0, not in the plan, because a
/// hook may read it after the session, and slabs stay mapped.
pub mod frames {
    /// The lowest address of their code.
    pub const BEGIN: u32 = super::segment::OFFSET + 1;
    /// The end of their code.
    pub const END: u32 = BEGIN + 1;
    /// The number of libraries.
    pub const COUNT: u32 = END + 1;
    /// [`LIBRARIES`] of [`library`].
    pub const FIRST: u32 = super::segment::BEGIN + 8;
    /// The most libraries.
    pub const LIBRARIES: u32 = if cfg!(tiptoe_loom) { 2 } else { 16 };
    /// libc's functions that wait for a lock which records its holder, [`OWNER_COUNT`] at most: the first address, then
    /// the end with an [`owner`] from bit [`OWNER_SHIFT`] on, or 0.
    pub const OWNERS: u32 = FIRST + LIBRARIES * library::WORDS;
    /// The most of these functions.
    pub const OWNER_COUNT: u32 = if cfg!(tiptoe_loom) { 1 } else { 32 };
    /// Words of a function.
    pub const OWNER_WORDS: u32 = 2;
    /// Position of an [`owner`] above an address.
    pub const OWNER_SHIFT: u32 = 56;

    /// For what a function waits.
    pub mod owner {
        /// A mutex, whose address is the futex's.
        pub const MUTEX: u64 = 1;
        /// A condition, and then for its mutex.
        pub const CONDITION: u64 = 2;
        /// A rwlock.
        pub const RWLOCK: u64 = 3;
    }

    /// Results of earlier searches, by a hash: return addresses, each with the rule, [`CACHED_LIBC`]
    /// or [`CACHED_MIXED`], and [`CACHED_TAKEN`].
    pub const CACHE: u32 = OWNERS + OWNER_COUNT * OWNER_WORDS;
    /// Log2 of the hashes.
    pub const CACHE_BITS: u32 = if cfg!(tiptoe_loom) { 1 } else { 12 };
    /// How many slots are probed, from the hash on.
    pub const LOOKS: u32 = if cfg!(tiptoe_loom) { 2 } else { 8 };
    /// The address is in libc.
    pub const CACHED_LIBC: u64 = 1 << 32;
    /// A thread has taken the slot and may still be filling it.
    pub const CACHED_TAKEN: u64 = 1 << 33;
    /// The address is in a [`library::MIXED`] library: the standard library's if it has a rule, else the
    /// user's.
    pub const CACHED_MIXED: u64 = 1 << 34;
    /// From here on: rows as `tiptoe_stack::find` reads them, by library.
    pub const ROWS: u32 = CACHE + 2 * ((1 << CACHE_BITS) + LOOKS);
    /// The most rows.
    pub const MOST_ROWS: u32 = super::history::RINGS - ROWS;

    /// A library whose functions a walk must leave.
    pub mod library {
        /// The end of the library's code; 0 if there is no library.
        pub const END: u32 = 0;
        /// The start of the library's code.
        pub const START: u32 = 1;
        /// The number that the loader adds to the library's addresses.
        pub const BASE: u32 = 2;
        /// The library's first row; from bit 32 on the number of its rows, and [`LIBC`] or [`MIXED`].
        pub const ROWS: u32 = 3;
        /// Words of a library.
        pub const WORDS: u32 = 4;
        /// The library is libc, whose functions name the kind of lock.
        pub const LIBC: u64 = 1 << 63;
        /// The library is the user's. Only functions of a standard library compiled into it have rows.
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
