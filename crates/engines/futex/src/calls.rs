//! A futex call, in front of its system call and behind it.
//!
//! Whether it waits or wakes is read from its operation. Several waits of one thread, one
//! after the other, for one lock in one call of the user's are one *episode*: a thread that
//! is woken may find the lock taken again. It ends where the thread waits for another, or
//! gives this one back: whoever has waited for a mutex tells so when he unlocks it.

use tiptoe_wire::Words;
use tiptoe_wire::futex::{OPERATION_SHIFT, WAKES, entry, head};

use crate::activities::{Activities, Activity};
use crate::board::Board;
use crate::entries::{Entries, Entry, Key};
use crate::walk::Caller;

/// Set beside a wait's operation where it begins an episode.
const FIRST: u64 = 1 << 32;

/// What a futex call does, by its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It may wait.
    Wait,
    /// It wakes whoever waits.
    Wake,
    /// Neither.
    Other,
}

impl Kind {
    /// Of an operation as the kernel has it, flags and all.
    pub fn of(operation: u32) -> Kind {
        match operation & 0x7f {
            0 | 6 | 9 | 11 | 13 => Kind::Wait,
            1 | 3 | 4 | 5 | 7 | 10 | 12 => Kind::Wake,
            _ => Kind::Other,
        }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody ended it.
    Woken,
    /// The word had changed before it began.
    AtOnce,
    /// Its time was over.
    TimedOut,
    /// A signal came.
    Interrupted,
    /// An error.
    Other,
}

impl End {
    /// By what the system call returned.
    pub fn of(result: i64) -> End {
        match result {
            0.. => End::Woken,
            -11 => End::AtOnce,
            -110 => End::TimedOut,
            -4 => End::Interrupted,
            _ => End::Other,
        }
    }

    fn word(self) -> u32 {
        match self {
            End::Woken => entry::WOKEN,
            End::AtOnce => entry::AT_ONCE,
            End::TimedOut => entry::TIMED_OUT,
            End::Interrupted => entry::INTERRUPTED,
            End::Other => entry::OTHER,
        }
    }
}

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The futex.
    pub address: u64,
    /// What is done with it.
    pub operation: u32,
    /// The stack pointer.
    pub sp: u64,
    /// Who called.
    pub caller: Caller,
    /// Where that is told of: it stands for the place in libc where there is no other.
    pub at: u64,
    /// The time, in ticks.
    pub now: u64,
    /// Whether somebody will tell when it is over.
    pub timed: bool,
}

/// What a thread writes to.
#[derive(Clone, Copy)]
pub struct Thread<'a> {
    own: Words<'a>,
    board: Board<'a>,
}

impl Call {
    /// The place in libc, with the operation above it.
    fn via(&self) -> u64 {
        let via = match self.caller.via {
            0 => self.at,
            via => via,
        };
        via | u64::from(self.operation & 0x7f) << OPERATION_SHIFT
    }
}

impl<'a> Thread<'a> {
    /// With words of its own, and those of slab 0.
    pub fn new(own: Words<'a>, shared: Words<'a>) -> Self {
        let board = Board::new(shared);
        Thread { own, board }
    }

    /// A call is about to be made.
    pub fn begins(&self, call: &Call) {
        match Kind::of(call.operation) {
            Kind::Wait => self.waits(call),
            Kind::Wake => self.wakes(call),
            Kind::Other => {}
        }
    }

    fn waits(&self, call: &Call) {
        self.own.add_own(head::WAITS as usize, 1);
        let Caller { site, frame, .. } = call.caller;
        let wait = Activity {
            sp: call.sp,
            address: call.address,
            site,
            via: call.via(),
            since: call.now,
            operation: u64::from(call.operation) | self.episode(call),
            frame,
        };
        if !call.timed || !Activities::new(self.own).push(&wait) {
            self.counted(&wait, End::Other);
        }
    }

    /// [`FIRST`] where the call begins an episode.
    #[inline]
    fn episode(&self, call: &Call) -> u64 {
        let (own, first) = (self.own, head::EPISODE as usize);
        let Caller { site, frame, .. } = call.caller;
        if own.load(first) == call.address
            && own.load(first + 1) == site
            && own.load(first + 2) == frame
        {
            return 0;
        }
        own.store(first, call.address);
        own.store(first + 1, site);
        own.store(first + 2, frame);
        FIRST
    }

    fn wakes(&self, call: &Call) {
        self.own.add_own(head::WAKES as usize, 1);
        self.board.note(call.address, call.caller.site, call.now);
        if self.own.load(head::EPISODE as usize) == call.address {
            self.own.store(head::EPISODE as usize, 0);
        }
        let key = Key {
            address: call.address,
            site: call.caller.site,
            via: call.via() | WAKES,
        };
        if let Some(entry) = self.entry(&key) {
            entry.add(entry::CALLS, 1);
        }
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
    fn counted(&self, wait: &Activity, end: End) -> Option<Entry<'a>> {
        let entry = self.entry(&Key {
            address: wait.address,
            site: wait.site,
            via: wait.via,
        })?;
        entry.add(entry::CALLS, 1);
        entry.add(end.word(), 1);
        if wait.operation & FIRST != 0 {
            entry.add(entry::EPISODES, 1);
        }
        Some(entry)
    }

    /// A call that was made at this stack pointer has returned this; `ns` turns ticks into
    /// nanoseconds. One that did not wait, or that began before anybody looked, is nobody's.
    pub fn ends(&self, sp: u64, result: i64, now: u64, ns: impl Fn(u64) -> u64) {
        let Some(wait) = Activities::new(self.own).pop(sp) else {
            return;
        };
        let end = End::of(result);
        let Some(entry) = self.counted(&wait, end) else {
            return;
        };
        let ns = ns(now.saturating_sub(wait.since));
        if end == End::AtOnce {
            return entry.add(entry::AT_ONCE_NS, ns);
        }
        entry.slept(ns);
        if end == End::Woken
            && let Some(site) = self.board.waker(wait.address, wait.since, now)
        {
            entry.woken_from(site, ns);
        }
    }
}

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

    fn call(operation: u32, site: u64, now: u64) -> Call {
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
            now,
            timed: true,
        }
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
        waiting.begins(&call(WAIT, 5, 100));
        waking.begins(&call(WAKE, 6, 150));
        waiting.ends(0x7000, 0, 200, |ticks| ticks * 10);
        let of_wait = [entry::CALLS, entry::WOKEN, entry::SLEPT_NS, entry::WAKERS];
        assert_eq!(words(&waiter, 5, &of_wait), [1, 1, 1000, 6]);
        assert_eq!(words(&waker, 6, &[entry::CALLS, entry::WOKEN]), [1, 0]);
        // Behind a call that did not wait, or that began before.
        waiting.ends(0x7000, 0, 300, |ticks| ticks);
        assert_eq!(words(&waiter, 5, &of_wait), [1, 1, 1000, 6]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn waits_of_one_call_are_one_episode() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        let wait = |result| {
            thread.begins(&call(WAIT, 5, 100));
            thread.ends(0x7000, result, 200, |ticks| ticks);
        };
        wait(-11);
        wait(0);
        let counts = [entry::EPISODES, entry::AT_ONCE, entry::WOKEN];
        assert_eq!(words(&own, 5, &counts), [1, 1, 1]);
        // It gives the lock back, and waits for it again.
        thread.begins(&call(WAKE, 6, 300));
        wait(-11);
        assert_eq!(words(&own, 5, &counts), [2, 2, 1]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: whole slabs, word by word")]
    fn what_is_not_timed_is_counted() {
        let (own, shared) = (slab(), slab());
        let thread = Thread::new(Words::new(&own), Words::new(&shared));
        thread.begins(&Call {
            timed: false,
            ..call(WAIT, 5, 100)
        });
        thread.begins(&call(8, 6, 100));
        assert_eq!(words(&own, 5, &[entry::CALLS, entry::OTHER]), [1, 1]);
    }
}
