//! A thread's waits in progress, outermost first: one wait, and the waits of signal handlers that interrupted it.
//!
//! A wait is identified by its position on the stack: the canonical frame address of the function that makes the futex
//! call, or the stack pointer if the function's unwind rule is unknown. A wait that was cancelled, or left by a signal
//! handler's jump, never returns. Such a wait keeps its slot until the thread waits at this position or above: only
//! then has the function certainly ended.
//!
//! A signal handler may interrupt `push`. So `push` stores the stack position first, which takes the slot, and the
//! address last, which completes the slot. tiptoe, which reads the slots, must skip those with address 0.

use tiptoe_wire::Words;
use tiptoe_wire::futex::{REPORTED, activity, head};

use crate::primitive::Ordering::Relaxed;

/// The largest distance of two positions on one stack.
const STACK: u64 = 8 << 20;

/// A wait in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The position on the stack, never 0.
    pub sp: u64,
    /// The awaited address.
    pub address: u64,
    /// The user's call site.
    pub site: u64,
    /// The return address in libc.
    pub via: u64,
    /// The beginning in ticks; for a wait that sampling skipped, the wait's number ([`crate::gaps`]).
    pub since: u64,
    /// The futex operation in the low 16 bits. [`crate::calls`] defines the bits above.
    pub operation: u64,
    /// The stack pointer after the return to `site`.
    pub frame: u64,
    /// The checksum of the address's last wake when the wait began ([`crate::board`]).
    pub seen: u64,
    /// For a wait that a library reports: the last futex inside the wait, or 0; `seen` is this futex's checksum. For a
    /// lock that records its holder: the lock's [`crate::history::History::mark`].
    pub within: u64,
}

/// A thread's waits.
#[derive(Clone, Copy)]
pub struct Activities<'a>(Words<'a>);

fn at(index: u32, word: u32) -> usize {
    (head::ACTIVITIES + index * activity::WORDS + word) as usize
}

fn sp_word(index: u32) -> usize {
    (head::SPS + index) as usize
}

impl<'a> Activities<'a> {
    /// Returns the waits in a thread's slab (its own counters).
    pub fn new(words: Words<'a>) -> Self {
        Activities(words)
    }

    fn sp(&self, index: u32) -> u64 {
        self.0.load(sp_word(index))
    }

    /// Returns whether there is no wait.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.sp(0) == 0
    }

    /// Removes and returns the innermost wait if any wait cannot be in progress at the stack pointer `sp`. The thread
    /// has left such a wait and all waits inside it.
    #[cold]
    #[inline(never)]
    pub fn pop_left(&self, sp: u64) -> Option<Activity> {
        let noted = || (0..activity::DEPTH).take_while(|index| self.sp(*index) != 0);
        noted().find(|index| !self.may_be_on(*index, sp))?;
        let innermost = noted().last()?;
        let wait = self.get(innermost, self.sp(innermost));
        self.0.store(sp_word(innermost), 0);
        // A slot has no address if a handler interrupted `push`.
        wait.or_else(|| self.pop_left(sp))
    }

    fn may_be_on(&self, index: u32, sp: u64) -> bool {
        let its = self.sp(index);
        its != 0 && (its > sp || sp - its >= STACK)
    }

    /// Records a wait. Returns `false` without a free slot.
    #[inline(always)]
    pub fn push(&self, wait: &Activity) -> bool {
        let index = match self.may_be_on(0, wait.sp) {
            false => 0,
            true => self.place_slow(wait.sp),
        };
        if index == activity::DEPTH {
            return false;
        }
        let put = |word, value| self.0.store(at(index, word), value);
        put(activity::ADDRESS, 0);
        self.0.store(sp_word(index), wait.sp);
        // The slot's former wait and the waits inside it have ended.
        if index + 1 < activity::DEPTH {
            self.0.store(sp_word(index + 1), 0);
        }
        put(activity::SITE, wait.site);
        put(activity::VIA, wait.via);
        put(activity::SINCE, wait.since);
        put(activity::OPERATION, wait.operation);
        put(activity::FRAME, wait.frame);
        put(activity::SEEN, wait.seen);
        put(activity::WITHIN, wait.within);
        put(activity::ADDRESS, wait.address);
        true
    }

    #[cold]
    #[inline(never)]
    fn place_slow(&self, sp: u64) -> u32 {
        let mut others = 1..activity::DEPTH;
        let free = others.find(|index| !self.may_be_on(*index, sp));
        free.unwrap_or(activity::DEPTH)
    }

    /// Returns whether a futex call is inside a wait that a library reports. If so, records the futex and its checksum
    /// in that wait, because the waker of the last futex ends that wait.
    #[cold]
    #[inline(never)]
    pub fn is_within_reported(&self, sp: u64, futex: u64, seen: impl FnOnce() -> u64) -> bool {
        let mut noted = (0..activity::DEPTH).take_while(|index| self.may_be_on(*index, sp));
        let is_reported = |index: &u32| {
            let operation = self.0.load(at(*index, activity::OPERATION));
            operation as u32 == REPORTED && self.sp(*index) > sp
        };
        let Some(index) = noted.find(is_reported) else {
            return false;
        };
        self.0.store(at(index, activity::SEEN), seen());
        self.0.store(at(index, activity::WITHIN), futex);
        true
    }

    /// Removes and returns the wait at this stack position.
    #[inline(always)]
    pub fn pop(&self, sp: u64) -> Option<Activity> {
        let index = match self.sp(0) == sp {
            true => 0,
            false => self.of_slow(sp)?,
        };
        let wait = self.get(index, sp);
        self.0.store(sp_word(index), 0);
        wait
    }

    #[cold]
    #[inline(never)]
    fn of_slow(&self, sp: u64) -> Option<u32> {
        let mut noted = (0..activity::DEPTH).take_while(|index| self.sp(*index) != 0);
        noted.find(|index| self.sp(*index) == sp)
    }

    /// Returns the waits' beginnings. Called only by tiptoe.
    pub fn beginnings(&self) -> [Option<u64>; activity::DEPTH as usize] {
        let mut beginnings = [None; activity::DEPTH as usize];
        for (index, beginning) in (0..activity::DEPTH).zip(&mut beginnings) {
            if self.sp(index) == 0 {
                break;
            }
            *beginning = Some(self.0.load(at(index, activity::SINCE)));
        }
        beginnings
    }

    /// If the wait's beginning is `beginning`, marks the wait as seen twice and sets its beginning to `since`.
    /// Beginnings are unique, so no later wait is marked. Called only by tiptoe.
    pub fn mark_seen(&self, index: usize, beginning: u64, since: u64) {
        let word = u32::try_from(index)
            .ok()
            .filter(|index| *index < activity::DEPTH);
        let word = word.and_then(|index| self.0.at(at(index, activity::SINCE)));
        let Some(word) = word else { return };
        // Relaxed: orders nothing. If the exchange fails, the wait has ended.
        let _ = word.compare_exchange(beginning, since | activity::GOES_ON, Relaxed, Relaxed);
    }

    /// Returns the waits in progress, outermost first.
    pub fn iter(&self) -> impl Iterator<Item = Activity> + '_ {
        let noted = (0..activity::DEPTH).map(|index| (index, self.sp(index)));
        let noted = noted.take_while(|(_, sp)| *sp != 0);
        noted.filter_map(|(index, sp)| self.get(index, sp))
    }

    #[inline(always)]
    fn get(&self, index: u32, sp: u64) -> Option<Activity> {
        let word = |word| self.0.load(at(index, word));
        let wait = Activity {
            sp,
            address: word(activity::ADDRESS),
            site: word(activity::SITE),
            via: word(activity::VIA),
            since: word(activity::SINCE),
            operation: word(activity::OPERATION),
            frame: word(activity::FRAME),
            seen: word(activity::SEEN),
            within: word(activity::WITHIN),
        };
        (wait.address != 0).then_some(wait)
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_wire::futex::ENTRY_WORDS;

    fn room() -> Vec<AtomicU64> {
        (0..ENTRY_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn wait(sp: u64) -> Activity {
        Activity {
            sp,
            address: sp + 1,
            site: 2,
            via: 3,
            since: 4,
            operation: 5,
            frame: 6,
            seen: 7,
            within: 0,
        }
    }

    fn on(activities: &Activities) -> Vec<u64> {
        activities.iter().map(|wait| wait.sp).collect()
    }

    #[test]
    fn a_handlers_wait_is_inside_of_another() {
        let room = room();
        let waits = Activities::new(Words::new(&room));
        for sp in [1000, 900, 800] {
            assert!(waits.push(&wait(sp)));
        }
        assert_eq!(on(&waits), [1000, 900, 800]);
        assert_eq!(waits.pop(800), Some(wait(800)));
        assert_eq!(waits.pop(800), None);
        assert_eq!(waits.pop(950), None, "no wait began there");
        assert_eq!(waits.pop(900), Some(wait(900)));
        assert_eq!(waits.pop(1000), Some(wait(1000)));
        assert_eq!(on(&waits), [0; 0]);
    }

    #[test]
    fn an_abandoned_wait_ends_when_the_thread_waits_above_it() {
        let room = room();
        let waits = Activities::new(Words::new(&room));
        for sp in [1000, 900, 800] {
            waits.push(&wait(sp));
        }
        waits.push(&wait(950));
        assert_eq!(on(&waits), [1000, 950]);
        waits.push(&wait(950));
        assert_eq!(on(&waits), [1000, 950]);
        // On another stack.
        waits.push(&wait(1000 + STACK));
        assert_eq!(on(&waits), [1000, 950, 1000 + STACK]);
        assert_eq!(waits.pop(1000 + STACK), Some(wait(1000 + STACK)));
        assert_eq!(waits.pop(1000), Some(wait(1000)), "its handlers have ended");
        assert_eq!(on(&waits), [0; 0]);
        waits.push(&wait(1000));
        assert_eq!(on(&waits), [1000], "the inner waits have ended");
    }

    #[test]
    fn abandoned_waits_are_removed_innermost_first() {
        let room = room();
        let waits = Activities::new(Words::new(&room));
        assert!(waits.is_empty());
        for sp in [1000, 900, 800] {
            waits.push(&wait(sp));
        }
        assert_eq!(waits.pop_left(700), None, "a handler below all of them");
        assert_eq!(waits.pop_left(850), Some(wait(800)));
        assert_eq!(waits.pop_left(850), None);
        assert_eq!(on(&waits), [1000, 900]);
        assert_eq!(waits.pop_left(1000), Some(wait(900)));
        assert_eq!(waits.pop_left(1000), Some(wait(1000)));
        assert!(waits.is_empty() && waits.pop_left(1000).is_none());
    }

    #[test]
    fn waits_beyond_the_depth_are_refused() {
        let room = room();
        let waits = Activities::new(Words::new(&room));
        let depth = u64::from(activity::DEPTH);
        for sp in (1..=depth).rev() {
            assert!(waits.push(&wait(1000 + sp)));
        }
        assert!(!waits.push(&wait(1000)));
        assert_eq!(waits.pop(1001), Some(wait(1001)));
        assert!(waits.push(&wait(1000)));
    }
}
