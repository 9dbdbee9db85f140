//! What is noted of contended locks: words of the slabs, from the session's lock slot on.
//!
//! | in a thread's slab | words |
//! |---|---|
//! | [`head`] | what it waits for now, and the episode it is in |
//! | from [`ENTRY_WORDS`] on | [`ENTRIES`] of [`entry`]: its waits and wakes by lock and call site |
//!
//! | in slab 0 | words |
//! |---|---|
//! | the [`board`] | who last woke somebody at each address |
//! | [`frames`] | how large the frames of libc's functions are, by return address |
//! | [`segment`] | where the slabs of this session are |
//! | [`UNSEEN`] | calls of threads that have no slab |
//!
//! A thread is the only writer of its words, together with its signal handlers: each is
//! changed by one instruction. Cells of the board have many writers, who take turns.

/// Entries of a thread: one page each, touched when it is first used. Few in a model, where
/// each word is an object of its own.
pub const ENTRIES: u32 = if cfg!(tiptoe_loom) { 3 } else { 255 };
/// Words of one; the first block of as many is the [`head`].
pub const ENTRY_WORDS: u32 = 512;
/// How many words there are in all.
pub const WIDTH: u32 = (ENTRIES + 1) * ENTRY_WORDS;
/// In slab 0: futex calls of threads without one of their own.
pub const UNSEEN: u32 = WIDTH - 1;

/// In slab 0: where the slabs of this session are, in the target.
pub mod segment {
    /// Where the first one begins.
    pub const BEGIN: u32 = super::UNSEEN - 3;
    /// Where the last one ends.
    pub const END: u32 = super::UNSEEN - 2;
    /// How many bytes behind its slab's beginning a thread's words are.
    pub const OFFSET: u32 = super::UNSEEN - 1;
}

/// To the hook: this is behind the call.
pub const AFTER: i32 = 1 << 30;
/// To the hook: nothing stands behind the call, so that a wait is counted only.
pub const UNTIMED: i32 = 1 << 29;
/// To the hook: how far above the stack pointer the caller's frame begins.
pub const DEPTH: i32 = (1 << 16) - 1;

/// The first words of a thread.
pub mod head {
    /// Calls that found no room among the entries.
    pub const FULL: u32 = 1;
    /// All calls that may wait.
    pub const WAITS: u32 = 2;
    /// All calls that wake.
    pub const WAKES: u32 = 3;
    /// The episode that goes on: address, call site, where the caller's frame begins.
    pub const EPISODE: u32 = 4;
    /// [`super::activity::DEPTH`] activities.
    pub const ACTIVITIES: u32 = 16;
}

/// A wait that is on.
pub mod activity {
    /// So many at once, one inside the other: handlers of signals wait, too.
    pub const DEPTH: u32 = 8;
    /// Words of one.
    pub const WORDS: u32 = 8;
    /// The stack pointer at the call; 0 where none is on.
    pub const SP: u32 = 0;
    /// The address that is waited at.
    pub const ADDRESS: u32 = 1;
    /// The user's call site.
    pub const SITE: u32 = 2;
    /// Where in libc it called, above all of libc's frames.
    pub const VIA: u32 = 3;
    /// When it began, in ticks.
    pub const SINCE: u32 = 4;
    /// The operation.
    pub const OPERATION: u32 = 5;
    /// Where the user's frame begins.
    pub const FRAME: u32 = 6;
}

/// What one thread did at one address from one call site.
pub mod entry {
    /// The address.
    pub const ADDRESS: u32 = 0;
    /// The user's call site.
    pub const SITE: u32 = 1;
    /// Where in libc it called, or our trampoline where that is all; from
    /// [`super::OPERATION_SHIFT`] on the operation, and [`super::WAKES`] where it wakes.
    pub const VIA: u32 = 2;
    /// Calls.
    pub const CALLS: u32 = 3;
    /// Of these: waits that somebody ended.
    pub const WOKEN: u32 = 4;
    /// Waits that returned at once, as the word had changed.
    pub const AT_ONCE: u32 = 5;
    /// Waits that ended with their time.
    pub const TIMED_OUT: u32 = 6;
    /// Waits that a signal ended.
    pub const INTERRUPTED: u32 = 7;
    /// All others, errors and those that are not timed.
    pub const OTHER: u32 = 8;
    /// Contended calls of the user's: one may wait several times.
    pub const EPISODES: u32 = 9;
    /// Nanoseconds in waits that did not return at once.
    pub const SLEPT_NS: u32 = 10;
    /// Nanoseconds in those that did.
    pub const AT_ONCE_NS: u32 = 11;
    /// The longest wait.
    pub const LONGEST: u32 = 12;
    /// Waits that were ended by a call site that found no room.
    pub const OTHER_WAKERS: u32 = 13;
    /// [`WAKER_COUNT`] call sites that ended waits: the site, how many, their nanoseconds.
    pub const WAKERS: u32 = 16;
    /// So many.
    pub const WAKER_COUNT: u32 = 10;
    /// Words of one.
    pub const WAKER_WORDS: u32 = 3;
    /// The waits that did not return at once by their duration: of no measurable time,
    /// then the histogram's.
    pub const DURATIONS: u32 = 64;
}

/// From which bit on [`entry::VIA`] has the operation, of seven bits.
pub const OPERATION_SHIFT: u32 = 56;
/// Set in [`entry::VIA`] where the entry is of wakes.
pub const WAKES: u64 = 1 << 63;

/// Who last woke somebody: in slab 0, by a hash of the address.
pub mod board {
    /// As many cells as this power of two.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 2 } else { 12 };
    /// Words of one: a cache line.
    pub const WORDS: u32 = 8;
    /// When, in ticks; 0 while it is written.
    pub const SINCE: u32 = 0;
    /// The address.
    pub const ADDRESS: u32 = 1;
    /// The user's call site.
    pub const SITE: u32 = 2;
}

/// Return addresses in libc: in slab 0, by a hash of each.
pub mod frames {
    /// The first word.
    pub const FIRST: u32 = super::board::WORDS << super::board::BITS;
    /// As many hashes as this power of two.
    pub const BITS: u32 = if cfg!(tiptoe_loom) { 2 } else { 12 };
    /// So many keys are looked at, from the hash on.
    pub const LOOKS: u32 = 8;
    /// How many keys there are: each with how far above the stack pointer, as it is
    /// after the return, the frame of that function's caller begins.
    pub const ROOM: u32 = (1 << BITS) + LOOKS;
}

const _: () = {
    assert!(head::ACTIVITIES + activity::DEPTH * activity::WORDS <= ENTRY_WORDS);
    assert!(entry::WAKERS + entry::WAKER_COUNT * entry::WAKER_WORDS <= entry::DURATIONS);
    assert!(entry::DURATIONS + 1 + tiptoe_event::HISTOGRAM_BUCKETS as u32 <= ENTRY_WORDS);
    assert!(frames::FIRST + 2 * frames::ROOM <= segment::BEGIN);
};
