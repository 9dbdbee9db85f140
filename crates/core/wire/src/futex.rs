//! What is noted of contended locks: words of the slabs, from the session's lock slot on.
//!
//! | in a thread's slab | words |
//! |---|---|
//! | [`head`] | what it waits for now, and the episode it is in |
//! | [`path`] | the ways through the runtime's libraries that it has come |
//! | from [`ENTRY_WORDS`] on | [`ENTRIES`] of [`entry`]: its waits by lock and call site |
//!
//! | in slab 0 | words |
//! |---|---|
//! | the [`board`] | who last woke somebody at each address |
//! | [`frames`] | how the functions of the runtime's libraries are left |
//! | [`segment`] | where the slabs of this session are |
//! | [`UNSEEN`] | calls of threads that have no slab |
//!
//! A thread is the only writer of its words, together with its signal handlers: each is
//! changed by one instruction. Cells of the board have many writers, each its own sum.

/// Entries of a thread: one page each, touched when it is first used. Few in a model, where
/// each word is an object of its own.
pub const ENTRIES: u32 = if cfg!(tiptoe_loom) { 3 } else { 255 };
/// Words of one; the first block of as many is the [`head`].
pub const ENTRY_WORDS: u32 = 512;
/// How many words there are in all.
pub const WIDTH: u32 = (ENTRIES + 1) * ENTRY_WORDS;
/// In slab 0: futex calls of threads without one of their own.
pub const UNSEEN: u32 = WIDTH - 1;

/// In slab 0: where the slabs of this session are, in the target. What each hook reads there, some
/// of [`frames`] too, is one cache line.
pub mod segment {
    /// Where the first one begins.
    pub const BEGIN: u32 = super::board::WORDS << super::board::BITS;
    /// Where the last one ends.
    pub const END: u32 = BEGIN + 1;
    /// How many bytes behind its slab's beginning a thread's words are.
    pub const OFFSET: u32 = BEGIN + 2;
}

/// To the hook: this is behind the call.
pub const AFTER: i32 = 1 << 30;
/// To the hook: nothing stands behind the call, so that a wait is counted only.
pub const UNTIMED: i32 = 1 << 29;
/// To the hook: it stands at a function's entry, and tells what becomes of the lock whose holds
/// are timed; one of [`hold`].
pub const HOLD: i32 = 7 << 26;
/// To the hook: the call is made in one of the functions of a rwlock.
pub const RWLOCK: i32 = i32::MIN;
/// To the hook: how the function is left, as `tiptoe_stack::Rule` has it.
pub const RULE: i32 = (1 << 26) - 1;

/// The operation of a wait that a library of the program's tells of itself: it counts as one, with all futex calls within it.
/// The address of its [`entry::VIA`] is that of the lock's label.
pub const TOLD: u32 = 0x7e;
/// From which bit on its [`entry::VIA`] has how the lock is taken, of eight bits.
pub const TOLD_MODE_SHIFT: u32 = 48;

/// What becomes of a lock.
pub mod hold {
    /// It is taken.
    pub const TAKES: i32 = 1 << 26;
    /// It is taken, or not: nobody looks at what comes back.
    pub const TRIES: i32 = 2 << 26;
    /// It is given back.
    pub const GIVES: i32 = 3 << 26;
    /// It is given back until a condition holds. The lock is the second argument.
    pub const LEAVES: i32 = 4 << 26;
}

/// The first words of a thread.
pub mod head {
    /// The wait that is timed next, by its number among [`WAITS`]: those before it are passed
    /// over, which is to say only counted. From [`GAP`] on is what it is drawn from.
    pub const NEXT: u32 = 0;
    /// Calls that found no room among the entries.
    pub const FULL: u32 = 1;
    /// All calls that may wait.
    pub const WAITS: u32 = 2;
    /// All calls that wake.
    pub const WAKES: u32 = 3;
    /// The episode that goes on: address, call site, where the caller's frame begins.
    pub const EPISODE: u32 = 4;
    /// The last of these; it stays where the episode is over, as somewhere in the thread's stack.
    pub const EPISODE_FRAME: u32 = EPISODE + 2;
    /// From here on: the lock that is held and timed, or 0; the call site that took it; where
    /// that frame begins; since when, in ticks, or 0; how many times. The first is in the line of
    /// what is in front of it.
    pub const HELD: u32 = 7;
    /// How many waits are passed over between two that are timed, on average: tiptoe says it.
    pub const GAP: u32 = 12;
    /// How many waits the next one that is timed stands for; 0 while each is timed.
    pub const STANDS_FOR: u32 = 13;
    /// What the last gap was drawn from.
    pub const SEED: u32 = 14;
    /// Where [`super::activity::DEPTH`] activities have their places on the stack; 0 where none is on.
    pub const SPS: u32 = 16;
    /// And what else is known of each.
    pub const ACTIVITIES: u32 = SPS + super::activity::DEPTH;
}

/// A wait that is on.
pub mod activity {
    /// So many at once, one inside the other: handlers of signals wait, too.
    pub const DEPTH: u32 = 8;
    /// Words of one.
    pub const WORDS: u32 = 8;
    /// The address that is waited at.
    pub const ADDRESS: u32 = 0;
    /// The user's call site.
    pub const SITE: u32 = 1;
    /// Where in libc it called, above libc's frames.
    pub const VIA: u32 = 2;
    /// When it began, in ticks; of one that is passed over its number among all waits, and
    /// [`PASSED_OVER`].
    pub const SINCE: u32 = 3;
    /// Nobody read the clock.
    pub const PASSED_OVER: u64 = 1 << 62;
    /// tiptoe has seen it go on: it is told for itself, and of one that was passed over tiptoe has
    /// noted since when, as well as it knows.
    pub const GOES_ON: u64 = 1 << 63;
    /// The operation.
    pub const OPERATION: u32 = 4;
    /// Where the user's frame begins.
    pub const FRAME: u32 = 5;
    /// What the [`super::board`] said of the address when it began.
    pub const SEEN: u32 = 6;
    /// Of one that is [`super::TOLD`]: the futex that was last waited for within; [`SEEN`] is of that.
    pub const WITHIN: u32 = 7;
}

/// A way through the runtime's libraries that the thread has come before, behind its activities.
pub mod path {
    /// From here on, by a hash of the first return address.
    pub const PATHS: u32 = 128;
    /// As many hashes as this power of two.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 1 } else { 5 };
    /// So many are looked at, from the hash on.
    pub const LOOKS: u32 = 2;
    /// Words of one: a cache line.
    pub const WORDS: u32 = 8;
    /// Its first return address, and from bit [`COUNT_SHIFT`] on how many libraries were known when it
    /// was noted; 0 where there is none.
    pub const FIRST: u32 = 0;
    /// As above.
    pub const COUNT_SHIFT: u32 = 56;
    /// The last one, the user's; 0 while it is not complete, and where it is not by the stack
    /// pointer alone, or too long.
    pub const USER: u32 = 1;
    /// The last one in libc, or 0.
    pub const VIA: u32 = 2;
    /// How far from the first one's frame those of the others begin, in words, of
    /// [`DISTANCE_BITS`] each; 0 behind the last.
    pub const DISTANCES: u32 = 3;
    /// Bits of one.
    pub const DISTANCE_BITS: u32 = 16;
    /// [`MOST`] return addresses between the first and the last one.
    pub const OTHERS: u32 = 4;
    /// So many, at most.
    pub const MOST: u32 = 3;
}

/// What one thread did at one address from one call site.
pub mod entry {
    /// The address.
    pub const ADDRESS: u32 = 0;
    /// The user's call site.
    pub const SITE: u32 = 1;
    /// Where in libc it called, or our trampoline where that is all; from
    /// [`super::OPERATION_SHIFT`] on the operation.
    pub const VIA: u32 = 2;
    /// Calls.
    pub const CALLS: u32 = 3;
    /// Of these: waits that somebody ended.
    pub const WOKEN: u32 = 4;
    /// Waits that returned at once, as the word had changed.
    pub const AT_ONCE: u32 = 5;
    /// Contended calls of the user's: one may wait several times.
    pub const EPISODES: u32 = 6;
    /// The node of scopes that the thread was in: with what each call looks at, in one cache line.
    pub const SCOPE: u32 = 7;
    /// Waits that a signal ended.
    pub const INTERRUPTED: u32 = 8;
    /// All others, errors and those that are not timed.
    pub const OTHER: u32 = 9;
    /// Nanoseconds in waits that did not return at once. This, [`DURATIONS`] and [`WAKERS`] count
    /// one that was timed as often as it stands for others.
    pub const SLEPT_NS: u32 = 10;
    /// Of these waits, those that were timed; errors are none.
    pub const TIMED: u32 = 11;
    /// The longest wait.
    pub const LONGEST: u32 = 12;
    /// Waits that were ended by a call site that found no room.
    pub const OTHER_WAKERS: u32 = 13;
    /// Of waits for a rwlock: how many threads had it to read when they began, summed up.
    pub const READERS: u32 = 14;
    /// And the most.
    pub const MOST_READERS: u32 = 15;
    /// [`WAKER_COUNT`] call sites that ended waits: the site, how many, their nanoseconds.
    pub const WAKERS: u32 = 16;
    /// So many.
    pub const WAKER_COUNT: u32 = 10;
    /// Words of one.
    pub const WAKER_WORDS: u32 = 3;
    /// Waits that ended with their time.
    pub const TIMED_OUT: u32 = WAKERS + WAKER_COUNT * WAKER_WORDS;
    /// The waits that did not return at once by their duration: of no measurable time,
    /// then the histogram's.
    pub const DURATIONS: u32 = 64;
    /// Of a wait that is [`super::TOLD`], from here on: how many bytes the lock's name has, and these.
    pub const NAME: u32 = 416;
    /// Words of the name, at most.
    pub const NAME_WORDS: u32 = 12;
}

/// From which bit on [`entry::VIA`] has the operation, of seven bits.
pub const OPERATION_SHIFT: u32 = 56;
/// All of [`entry::VIA`] where the entry is of the times that a lock was held: no operation has
/// this number.
pub const HOLDS: u64 = 0x7f << OPERATION_SHIFT;

/// Who last woke somebody: in slab 0, by a hash of the address.
pub mod board {
    /// As many cells as this power of two.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 2 } else { 12 };
    /// Words of one: a cache line.
    pub const WORDS: u32 = 8;
    /// Which of all wakes it is.
    pub const STAMP: u32 = 0;
    /// The address.
    pub const ADDRESS: u32 = 1;
    /// The user's call site.
    pub const SITE: u32 = 2;
    /// A sum of these three, by which whoever reads knows that they belong together.
    pub const SUM: u32 = 3;
}

/// How the functions of the runtime's libraries are left: in slab 0, and not in the plan, as
/// the memory of slabs stays where it is when the session is over, which a hook may not know.
pub mod frames {
    /// Where the first of all their code begins.
    pub const BEGIN: u32 = super::segment::OFFSET + 1;
    /// Where the last of it ends.
    pub const END: u32 = BEGIN + 1;
    /// Where the first function of libc's rwlocks begins.
    pub const RWLOCKS: u32 = END + 1;
    /// Where the last of them ends.
    pub const RWLOCKS_END: u32 = RWLOCKS + 1;
    /// How many libraries there are.
    pub const COUNT: u32 = RWLOCKS_END + 1;
    /// [`LIBRARIES`] of [`library`].
    pub const FIRST: u32 = super::segment::BEGIN + 8;
    /// So many, at most.
    pub const LIBRARIES: u32 = if cfg!(tiptoe_loom) { 2 } else { 16 };
    /// What was searched for before, by a hash: return addresses, and what was found: the rule,
    /// [`KNOWN_LIBC`] or [`KNOWN_MIXED`], and [`KNOWN_TAKEN`].
    pub const KNOWN: u32 = FIRST + LIBRARIES * library::WORDS;
    /// As many hashes as this power of two.
    pub const KNOWN_BITS: u32 = if cfg!(tiptoe_loom) { 1 } else { 12 };
    /// So many are looked at, from the hash on.
    pub const LOOKS: u32 = if cfg!(tiptoe_loom) { 2 } else { 8 };
    /// The address is in libc.
    pub const KNOWN_LIBC: u64 = 1 << 32;
    /// Somebody keeps an address there.
    pub const KNOWN_TAKEN: u64 = 1 << 33;
    /// The address is in a [`library::MIXED`] one: of the standard library where it has a rule, else the user's.
    pub const KNOWN_MIXED: u64 = 1 << 34;
    /// From here on: rows as `tiptoe_stack::find` reads them, library by library.
    pub const ROWS: u32 = KNOWN + 2 * ((1 << KNOWN_BITS) + LOOKS);
    /// So many, at most.
    pub const MOST_ROWS: u32 = super::UNSEEN - ROWS;

    /// A library.
    pub mod library {
        /// Where its code ends; 0 while there is none.
        pub const END: u32 = 0;
        /// Where its code begins.
        pub const START: u32 = 1;
        /// What the loader adds to its addresses.
        pub const BASE: u32 = 2;
        /// Its first row; from bit 32 on how many it has, and [`LIBC`] or [`MIXED`].
        pub const ROWS: u32 = 3;
        /// Words of one.
        pub const WORDS: u32 = 4;
        /// Its functions say what is waited for.
        pub const LIBC: u64 = 1 << 63;
        /// It is the user's, but for functions of a standard library that were compiled into it: these have rows.
        pub const MIXED: u64 = 1 << 62;
    }
}

const _: () = {
    assert!(head::ACTIVITIES + activity::DEPTH * activity::WORDS <= path::PATHS);
    assert!(path::PATHS + ((1 << path::BITS) + path::LOOKS) * path::WORDS <= ENTRY_WORDS);
    assert!(path::OTHERS + path::MOST <= path::WORDS);
    assert!((path::MOST + 1) * path::DISTANCE_BITS <= u64::BITS);
    assert!(entry::WAKERS + entry::WAKER_COUNT * entry::WAKER_WORDS <= entry::DURATIONS);
    assert!(entry::DURATIONS + 1 + tiptoe_event::HISTOGRAM_BUCKETS as u32 <= entry::NAME);
    assert!(entry::NAME + 1 + entry::NAME_WORDS <= ENTRY_WORDS);
    assert!(activity::WITHIN < activity::WORDS);
    assert!(frames::COUNT < frames::FIRST && frames::ROWS < UNSEEN);
};
