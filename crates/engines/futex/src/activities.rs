//! The waits that a thread is in: one, and inside of it those of its signal handlers.
//!
//! They are kept from the outermost on, each by its place on the stack: where the caller's
//! frame begins, or the stack pointer where that is not known. A wait that never
//! returns (it was cancelled, or a handler jumped out of it) stays until the thread
//! waits again at that place of its stack or above: then it cannot be on any more.
//!
//! A handler may come in at each instruction. A slot is taken by its place on the stack before
//! anything else is written to it, and is complete once its address is there; the
//! collector, which looks on, passes over one that has none.

use tiptoe_wire::Words;
use tiptoe_wire::futex::{TOLD, activity, head};

use crate::primitive::Ordering::Relaxed;

/// Stacks are no larger than this: what is farther apart is on different ones.
const STACK: u64 = 8 << 20;

/// A wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Its place on the stack.
    pub sp: u64,
    /// The address that is waited at.
    pub address: u64,
    /// The user's call site.
    pub site: u64,
    /// Where in libc it called.
    pub via: u64,
    /// When it began, in ticks, or what stands for that: see [`crate::gaps`].
    pub since: u64,
    /// The futex operation; above its 32 bits whatever the caller wants to keep.
    pub operation: u64,
    /// Where the user's frame begins.
    pub frame: u64,
    /// What the board said of the address: see [`crate::board`].
    pub seen: u64,
    /// The futex that was last waited for within, of which the board was asked then: see [`crate::told`].
    pub within: u64,
}

/// The activities in a thread's words.
#[derive(Clone, Copy)]
pub struct Activities<'a>(Words<'a>);

fn at(index: u32, word: u32) -> usize {
    (head::ACTIVITIES + index * activity::WORDS + word) as usize
}

fn place(index: u32) -> usize {
    (head::SPS + index) as usize
}

impl<'a> Activities<'a> {
    /// Those in the words of a thread.
    pub fn new(words: Words<'a>) -> Self {
        Activities(words)
    }

    fn sp(&self, index: u32) -> u64 {
        self.0.load(place(index))
    }

    /// Whether what is noted there may be on while the stack pointer is at `sp`.
    fn may_be_on(&self, index: u32, sp: u64) -> bool {
        let its = self.sp(index);
        its != 0 && (its > sp || sp - its >= STACK)
    }

    /// A wait begins. False where there is no room to note it.
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
        self.0.store(place(index), wait.sp);
        // What was inside of a wait that is no more.
        if index + 1 < activity::DEPTH {
            self.0.store(place(index + 1), 0);
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

    /// Where a wait goes that is inside of another.
    #[cold]
    #[inline(never)]
    fn place_slow(&self, sp: u64) -> u32 {
        let mut others = 1..activity::DEPTH;
        let free = others.find(|index| !self.may_be_on(*index, sp));
        free.unwrap_or(activity::DEPTH)
    }

    /// Whether what begins at this stack pointer is within a wait that is told of, and notes of that for which futex,
    /// and what the board says of it.
    #[inline(always)]
    pub fn is_within_told(&self, sp: u64, futex: u64, seen: impl FnOnce() -> u64) -> bool {
        match self.sp(0) {
            0 => false,
            _ => self.is_within_told_slow(sp, futex, seen),
        }
    }

    #[cold]
    #[inline(never)]
    fn is_within_told_slow(&self, sp: u64, futex: u64, seen: impl FnOnce() -> u64) -> bool {
        let mut noted = (0..activity::DEPTH).take_while(|index| self.may_be_on(*index, sp));
        let told = |index: &u32| {
            let operation = self.0.load(at(*index, activity::OPERATION));
            operation as u32 == TOLD && self.sp(*index) > sp
        };
        let Some(index) = noted.find(told) else {
            return false;
        };
        self.0.store(at(index, activity::SEEN), seen());
        self.0.store(at(index, activity::WITHIN), futex);
        true
    }

    /// A wait ends: the one that began at this stack pointer.
    #[inline(always)]
    pub fn pop(&self, sp: u64) -> Option<Activity> {
        let index = match self.sp(0) == sp {
            true => 0,
            false => self.of_slow(sp)?,
        };
        let wait = self.get(index, sp);
        self.0.store(place(index), 0);
        wait
    }

    #[cold]
    #[inline(never)]
    fn of_slow(&self, sp: u64) -> Option<u32> {
        let mut noted = (0..activity::DEPTH).take_while(|index| self.sp(*index) != 0);
        noted.find(|index| self.sp(*index) == sp)
    }

    /// What each of those that are on has as its beginning. (tiptoe)
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

    /// Notes of one of them that it goes on since then, if it is still the one that has this as its
    /// beginning: no two have the same. (tiptoe)
    pub fn goes_on(&self, index: usize, beginning: u64, since: u64) {
        let word = u32::try_from(index)
            .ok()
            .filter(|index| *index < activity::DEPTH);
        let word = word.and_then(|index| self.0.at(at(index, activity::SINCE)));
        let Some(word) = word else { return };
        // Relaxed: the word is all that is told. Who fails has come late.
        let _ = word.compare_exchange(beginning, since | activity::GOES_ON, Relaxed, Relaxed);
    }

    /// Those that are on, from the outermost one.
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
        assert_eq!(waits.pop(950), None, "none began there");
        assert_eq!(waits.pop(900), Some(wait(900)));
        assert_eq!(waits.pop(1000), Some(wait(1000)));
        assert_eq!(on(&waits), [0; 0]);
    }

    #[test]
    fn a_wait_that_was_left_goes_when_the_thread_waits_above_it() {
        let room = room();
        let waits = Activities::new(Words::new(&room));
        for sp in [1000, 900, 800] {
            waits.push(&wait(sp));
        }
        waits.push(&wait(950));
        assert_eq!(on(&waits), [1000, 950]);
        waits.push(&wait(950));
        assert_eq!(on(&waits), [1000, 950]);
        // A handler on a stack of its own, above ours.
        waits.push(&wait(1000 + STACK));
        assert_eq!(on(&waits), [1000, 950, 1000 + STACK]);
        assert_eq!(waits.pop(1000 + STACK), Some(wait(1000 + STACK)));
        assert_eq!(waits.pop(1000), Some(wait(1000)), "out of its handlers");
        assert_eq!(on(&waits), [0; 0]);
        waits.push(&wait(1000));
        assert_eq!(on(&waits), [1000], "what was inside is gone");
    }

    #[test]
    fn only_so_many_are_kept() {
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
