//! What the hooks do before and after a futex system call.
//!
//! The operation decides whether a call waits or wakes. A woken thread may find the lock taken, and
//! wait again. Such consecutive waits for one lock, inside one call of the user's, are an
//! *episode*. It ends when the thread waits for another lock or wakes this one's waiters, because a
//! thread that has waited for a mutex always makes a wake call when it unlocks.

use tiptoe_wire::Words;
use tiptoe_wire::futex::{HOLDS, OPERATION_SHIFT, entry, head};

use crate::activities::{Activities, Activity};
use crate::board::Board;
use crate::entries::{Entries, Entry, Key};
use crate::gaps::{Beginning, Gaps};
use crate::holds::{Holds, LockOperation};
use crate::operation::{End, Kind};
use crate::walk::Caller;

/// Set in [`Activity::operation`] if the wait begins an episode.
pub(crate) const FIRST: u64 = 1 << 32;
/// Position in [`Activity::operation`] of the number of threads that hold the rwlock to read.
const READERS_SHIFT: u32 = 33;
const READERS: u64 = (1 << (STANDS_FOR_SHIFT - READERS_SHIFT)) - 1;
/// Position in [`Activity::operation`] of the wait's weight; 0 if skipped.
const STANDS_FOR_SHIFT: u32 = 57;

const _: () = assert!(2 * crate::gaps::MOST + 1 < 1 << (u64::BITS - STANDS_FOR_SHIFT));

/// A futex call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The futex.
    pub address: u64,
    /// The futex operation.
    pub operation: u32,
    /// Its position on the stack, the same for the hooks before and after: see [`Activity::sp`].
    pub sp: u64,
    /// The caller.
    pub caller: Caller,
    /// The hook's site, reported for a caller without a place in libc.
    pub at: u64,
    /// Whether a hook runs after the call, which can time the wait.
    pub timed: bool,
}

/// The words that a thread's hooks write.
#[derive(Clone, Copy)]
pub struct Thread<'a> {
    own: Words<'a>,
    board: Board<'a>,
    scope: u64,
}

impl Call {
    /// Returns the place in libc, with the operation above.
    fn via(&self) -> u64 {
        let via = match self.caller.via {
            0 => self.at,
            via => via,
        };
        via | u64::from(self.operation & 0x7f) << OPERATION_SHIFT
    }
}

impl<'a> Thread<'a> {
    /// Returns the hooks' state in the thread's words and slab 0's.
    pub fn new(own: Words<'a>, shared: Words<'a>) -> Self {
        let (board, scope) = (Board::new(shared), 0);
        Thread { own, board, scope }
    }

    /// Returns the same for the thread's scope node.
    #[inline(always)]
    #[must_use]
    pub fn within(self, scope: u64) -> Self {
        Thread { scope, ..self }
    }

    #[inline(always)]
    pub(crate) fn own(&self) -> Words<'a> {
        self.own
    }

    /// Records a call before it is made. For a wait, `readers` returns the rwlock's number of
    /// readers, 0 for other locks. `clock`, in ticks, is called only if the wait is sampled.
    #[inline(always)]
    pub fn begins(&self, call: &Call, readers: impl FnOnce() -> u32, clock: impl FnOnce() -> u64) {
        match Kind::of(call.operation) {
            Kind::Wait => self.waits(call, readers(), clock),
            Kind::Wake => self.wakes(call),
            Kind::Other => {}
        }
    }

    #[inline(always)]
    fn waits(&self, call: &Call, readers: u32, clock: impl FnOnce() -> u64) {
        let activities = Activities::new(self.own);
        if !activities.is_empty() && self.is_inside(call) {
            return;
        }
        let number = self.own.count_own(head::WAITS as usize);
        let gaps = Gaps::new(self.own);
        let (since, stands_for, seen) = match gaps.skip(number) {
            Some(number) => (number, 0, 0),
            None => {
                cold_branch();
                let now = clock();
                let seen = self.board.seen(call.address);
                (now, gaps.stands_for(now), seen)
            }
        };
        let Caller { site, frame, .. } = call.caller;
        let wait = Activity {
            sp: call.sp,
            address: call.address,
            site,
            via: call.via(),
            since,
            operation: u64::from(call.operation)
                | self.episode(call)
                | (u64::from(readers) & READERS) << READERS_SHIFT
                | stands_for << STANDS_FOR_SHIFT,
            frame,
            seen,
            within: 0,
        };
        if !call.timed || !activities.push(&wait) {
            self.counted(&wait, End::Other);
        }
    }

    /// Returns whether the call is inside a wait that a library reported. Counts waits that the thread has left without
    /// a return: then it could not be here.
    #[cold]
    #[inline(never)]
    fn is_inside(&self, call: &Call) -> bool {
        let activities = Activities::new(self.own);
        let seen = || self.board.seen(call.address);
        if activities.is_within_reported(call.sp, call.address, seen) {
            return true;
        }
        while let Some(wait) = activities.pop_left(call.sp) {
            self.counts_left(&wait);
        }
        false
    }

    /// Returns [`FIRST`] if the call begins an episode, else 0.
    #[inline]
    fn episode(&self, call: &Call) -> u64 {
        let (own, first) = (self.own, head::EPISODE as usize);
        let Caller { site, frame, .. } = call.caller;
        if own.load(first) == call.address
            && own.load(first + 1) == site
            && own.load(head::EPISODE_FRAME as usize) == frame
        {
            return 0;
        }
        own.store(first, call.address);
        own.store(first + 1, site);
        own.store(head::EPISODE_FRAME as usize, frame);
        FIRST
    }

    #[inline(always)]
    fn wakes(&self, call: &Call) {
        let wakes = self.own.count_own(head::WAKES as usize);
        self.board
            .note(call.address, call.caller.site, self.stamp(wakes));
        if self.own.load(head::EPISODE as usize) == call.address {
            self.own.store(head::EPISODE as usize, 0);
        }
    }

    /// Returns a stamp that no other wake has, nor this thread's next 2^37: slabs are 1 MiB from
    /// each other, so the address gives each thread its range.
    #[inline(always)]
    fn stamp(&self, wakes: u64) -> u64 {
        (self.own.address() << 17).wrapping_add(wakes)
    }

    #[inline(always)]
    fn entry(&self, key: &Key) -> Option<Entry<'a>> {
        let entry = Entries::new(self.own).of(key);
        if entry.is_none() {
            self.own.add_own(head::FULL as usize, 1);
        }
        entry
    }

    #[inline(always)]
    pub(crate) fn entry_of(&self, wait: &Activity) -> Option<Entry<'a>> {
        self.entry(&Key {
            address: wait.address,
            site: wait.site,
            via: wait.via,
            scope: self.scope,
        })
    }

    #[inline(always)]
    fn counted(&self, wait: &Activity, end: End) -> Option<Entry<'a>> {
        let entry = self.entry_of(wait)?;
        entry.add(entry::CALLS, 1);
        entry.add(end.word(), 1);
        if wait.operation & FIRST != 0 {
            entry.add(entry::EPISODES, 1);
        }
        let readers = wait.operation >> READERS_SHIFT & READERS;
        if readers != 0 {
            entry.found_readers(readers);
        }
        Some(entry)
    }

    /// Records that the call at this stack position returned `result`. `clock` returns the time,
    /// and `ns` converts ticks. A call without a recorded beginning is ignored: it did not wait, or
    /// began before the hooks were installed. Waits that returned at once or were skipped are not
    /// timed, because reading the clock would dominate their cost.
    #[inline(always)]
    pub fn ends(&self, sp: u64, result: i64, clock: impl Fn() -> u64, ns: impl Fn(u64) -> u64) {
        if let Some(wait) = Activities::new(self.own).pop(sp) {
            self.over(&wait, result, clock, ns);
        }
    }

    #[inline(always)]
    pub(crate) fn over(
        &self,
        wait: &Activity,
        result: i64,
        clock: impl Fn() -> u64,
        ns: impl Fn(u64) -> u64,
    ) -> Option<Entry<'a>> {
        let (holds, end) = (Holds::new(self.own), End::of(result));
        let beginning = Beginning::of(wait.since);
        if end == End::AtOnce || beginning == Beginning::Unknown {
            holds.waited(wait.site, wait.frame, clock);
            return self.counted(wait, end);
        }
        cold_branch();
        let now = clock();
        holds.waited(wait.site, wait.frame, || now);
        let entry = self.counted(wait, end)?;
        let stands_for = wait.operation >> STANDS_FOR_SHIFT;
        let (since, weight) = match beginning {
            Beginning::At(since) => (since, stands_for),
            Beginning::LongAgo(since) => (since, 1),
            Beginning::Unknown => return Some(entry),
        };
        let ns = ns(now.saturating_sub(since));
        entry.slept(ns, weight);
        if stands_for != 0 && end != End::Other {
            entry.add(entry::TIMED, 1);
        }
        // A skipped wait saved no checksum, so the last recorded waker is blamed. That is wrong if
        // no hook saw the real one.
        let address = match wait.within {
            0 => wait.address,
            futex => futex,
        };
        if end == End::Woken
            && let Some(site) = self.board.waker(address, wait.seen)
        {
            entry.woken_from(site, ns, weight);
        }
        Some(entry)
    }

    /// Records a call that takes or releases the lock whose hold times are measured.
    #[inline(never)]
    pub fn lock_operation(
        &self,
        operation: LockOperation,
        lock: u64,
        caller: &Caller,
        now: u64,
        ns: impl Fn(u64) -> u64,
    ) {
        let holds = Holds::new(self.own);
        let is_exclusive = matches!(operation, LockOperation::Frees | LockOperation::Leaves);
        let released = if is_exclusive {
            self.board.released()
        } else {
            0
        };
        let held = holds.record(operation, lock, caller, now, released);
        if operation == LockOperation::Leaves || is_exclusive && !holds.is_held_on(lock) {
            self.board.note_release(now);
        }
        let Some(held) = held else {
            return;
        };
        let key = Key {
            address: lock,
            site: held.site,
            via: HOLDS,
            scope: 0,
        };
        if let Some(entry) = self.entry(&key) {
            entry.add(entry::CALLS, 1);
            entry.slept(ns(held.ticks), 1);
        }
    }
}

/// Marks the branch of timed waits as cold, so that skipped waits run straight.
#[cold]
fn cold_branch() {}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_wire::futex::WIDTH;

    fn slab() -> Vec<AtomicU64> {
        (0..WIDTH).map(|_| AtomicU64::new(0)).collect()
    }

    fn call(operation: u32, site: u64) -> Call {
        Call {
            address: 0x1000,
            operation,
            sp: 0x7000,
            caller: Caller {
                site,
                via: 9,
                frame: 0x7100,
            },
            at: 0,
            timed: true,
        }
    }

    fn no_clock() -> u64 {
        panic!("only a wait is timed");
    }

    const WAIT: u32 = 0x80;
    const WAKE: u32 = 0x81;

    fn words(slab: &[AtomicU64], site: u64, wanted: &[u32]) -> Vec<u64> {
        let own = Words::new(slab);
        let blocks = 1..=tiptoe_wire::futex::ENTRIES;
        let first = |block: u32| block * tiptoe_wire::futex::ENTRY_WORDS;
        let at = |block, word| own.load((first(block) + word) as usize);
        let mut mine = blocks.filter(|block| at(*block, entry::SITE) == site);
        let block = mine.next().expect("an entry");
        assert_eq!(mine.next(), None);
        wanted.iter().map(|word| at(block, *word)).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn a_wait_is_counted_timed_and_blamed() {
        let (waiter, waker, shared) = (slab(), slab(), slab());
        let thread = |own| Thread::new(Words::new(own), Words::new(&shared));
        let (waiting, waking) = (thread(&waiter), thread(&waker));
        waiting.begins(&call(WAIT, 5), || 0, || 100);
        waking.begins(&call(WAKE, 6), || 0, no_clock);
        waiting.ends(0x7000, 0, || 200, |ticks| ticks * 10);
        let of_wait = [entry::CALLS, entry::WOKEN, entry::SLEPT_NS, entry::WAKERS];
        assert_eq!(words(&waiter, 5, &of_wait), [1, 1, 1000, 6]);
        // The hook after a call that did not wait, or began before the hooks.
        waiting.ends(0x7000, 0, || 300, |ticks| ticks);
        assert_eq!(words(&waiter, 5, &of_wait), [1, 1, 1000, 6]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn waits_of_one_call_are_one_episode() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        let wait = |result| {
            thread.begins(&call(WAIT, 5), || 0, || 100);
            thread.ends(0x7000, result, || 200, |ticks| ticks);
        };
        wait(-11);
        wait(0);
        let counts = [entry::EPISODES, entry::AT_ONCE, entry::WOKEN];
        assert_eq!(words(&own, 5, &counts), [1, 1, 1]);
        thread.begins(&call(WAKE, 6), || 0, no_clock);
        wait(-11);
        assert_eq!(words(&own, 5, &counts), [2, 2, 1]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn waits_that_were_left_are_counted() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        // The first one never returns; the second one begins where the first one was.
        thread.begins(&call(WAIT, 5), || 0, || 100);
        thread.begins(&call(WAIT, 6), || 0, || 300);
        let of_left = [entry::CALLS, entry::LEFT, entry::EPISODES, entry::SLEPT_NS];
        assert_eq!(words(&own, 5, &of_left), [1, 1, 1, 0]);
        thread.ends(0x7000, 0, || 400, |ticks| ticks);
        assert_eq!(words(&own, 6, &of_left), [1, 0, 1, 100]);
        thread.begins(&call(WAIT, 6), || 0, || 500);
        thread.leaves_all();
        assert_eq!(words(&own, 6, &of_left), [2, 1, 1, 100]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn waits_without_an_after_hook_are_counted() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        let untimed = Call {
            timed: false,
            ..call(WAIT, 5)
        };
        thread.begins(&untimed, || 0, || 100);
        thread.begins(&call(8, 6), || 0, no_clock);
        assert_eq!(words(&own, 5, &[entry::CALLS, entry::OTHER]), [1, 1]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn skipped_waits_are_counted_and_weighted() {
        let (own, shared) = (slab(), slab());
        let words = Words::new(&own);
        let thread = Thread::new(words, Words::new(&shared));
        let counts = [entry::CALLS, entry::WOKEN, entry::AT_ONCE, entry::EPISODES];
        thread.begins(&call(WAKE, 6), || 0, no_clock);
        words.store(head::NEXT as usize, 4);
        words.store(head::STANDS_FOR as usize, 4);
        for result in [0, -11, 0] {
            thread.begins(&call(WAIT, 5), || 0, no_clock);
            thread.ends(0x7000, result, no_clock, |ticks| ticks);
        }
        assert_eq!(words_of(&own, &counts), [3, 2, 1, 1]);
        assert_eq!(words_of(&own, &[entry::TIMED, entry::SLEPT_NS]), [0, 0]);
        thread.begins(&call(WAIT, 5), || 0, || 100);
        thread.begins(&call(WAKE, 6), || 0, no_clock);
        thread.ends(0x7000, 0, || 110, |ticks| ticks);
        let sums = [entry::TIMED, entry::SLEPT_NS, entry::LONGEST];
        assert_eq!(words_of(&own, &sums), [1, 40, 10]);
        let waker = [entry::WAKERS, entry::WAKERS + 1, entry::WAKERS + 2];
        assert_eq!(words_of(&own, &waker), [6, 4, 40]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn a_wait_seen_twice_has_weight_one() {
        let (own, shared) = (slab(), slab());
        let words = Words::new(&own);
        let thread = Thread::new(words, Words::new(&shared));
        let waits = Activities::new(words);
        let beginning = || waits.beginnings()[0].expect("it is on");
        words.store(head::NEXT as usize, 2);
        words.store(head::STANDS_FOR as usize, 9);
        thread.begins(&call(WAIT, 5), || 0, no_clock);
        let first = beginning();
        waits.mark_seen(0, first, 150);
        thread.ends(0x7000, 0, || 200, |ticks| ticks);
        let sums = [entry::CALLS, entry::TIMED, entry::SLEPT_NS];
        assert_eq!(words_of(&own, &sums), [1, 0, 50]);
        thread.begins(&call(WAIT, 5), || 0, || 300);
        waits.mark_seen(0, first, 1);
        waits.mark_seen(0, beginning(), beginning());
        waits.mark_seen(9, 0, 0);
        thread.ends(0x7000, 0, || 400, |ticks| ticks);
        assert_eq!(words_of(&own, &sums), [2, 1, 150]);
    }

    fn words_of(slab: &[AtomicU64], wanted: &[u32]) -> Vec<u64> {
        words(slab, 5, wanted)
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn readers_are_summed_up() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        for readers in [3, 0, 5, 4] {
            thread.begins(&call(WAIT, 5), || readers, || 100);
            thread.ends(0x7000, 0, || 200, |ticks| ticks);
        }
        let of_readers = [entry::CALLS, entry::READERS, entry::MOST_READERS];
        assert_eq!(words(&own, 5, &of_readers), [4, 12, 5]);
    }
}
