//! Hand-overs of locks: which thread has a lock since when, recorded by threads that slept for it.
//!
//! A lock that is released while threads sleep wakes one of them. That thread finds out who has the lock now: itself,
//! or a thread that was faster. So the hand-overs during any wait are all recorded by the threads that woke up
//! meanwhile, and only these write here; a sleep costs far more.
//!
//! Each hash of a lock's address has a ring. A thread takes a place by one addition, and stores its words there one by
//! one, with their checksum. A reader skips a place whose checksum does not match: another thread is writing there, or
//! has overwritten it. So the words need no ordering.
//!
//! INVARIANT: the checksum covers the lock and the hand-over's number, so an older hand-over in the same place never
//! matches, and neither do mixed words, but for a chance of one in 2^64.

use tiptoe_wire::Words;
use tiptoe_wire::futex::history::{
    AT, BITS, COUNT, HOLDER, OWN, RING_WORDS, RINGS, SITE, SUM, WHO, WORDS,
};

use crate::HASH;
use crate::primitive::Ordering::Relaxed;

/// Who has a lock from a time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    /// When, in ticks.
    pub at: u64,
    /// The holder from then on: a thread's id, `READERS`, `NOBODY`, or 0 if unknown.
    pub holder: u32,
    /// Whether the holder recorded this itself.
    pub is_own: bool,
    /// How the holder before released the lock.
    pub release: Release,
}

/// A release of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The thread, or 0 if the release is unknown.
    pub thread: u32,
    /// Its call site.
    pub site: u64,
}

/// The rings, in the words of slab 0.
#[derive(Clone, Copy)]
pub struct History<'a>(Words<'a>);

/// Hand-overs of one lock, newest first.
pub struct Newest<'a> {
    words: Words<'a>,
    ring: usize,
    lock: u64,
    next: u64,
    last: u64,
}

fn ring(lock: u64) -> usize {
    let hash = match BITS {
        0 => 0,
        bits => (lock >> 2).wrapping_mul(HASH) >> (64 - bits),
    };
    RINGS as usize + hash as usize * RING_WORDS as usize
}

fn place(ring: usize, number: u64) -> usize {
    ring + 8 + (number % u64::from(COUNT)) as usize * WORDS as usize
}

fn sum(lock: u64, number: u64, [at, who, site]: [u64; 3]) -> u64 {
    let words = [number, at, who, site].into_iter();
    words.fold(lock, |sum, word| sum.wrapping_mul(HASH) ^ word)
}

impl<'a> History<'a> {
    /// Returns the rings in the words of slab 0.
    pub fn new(words: Words<'a>) -> Self {
        History(words)
    }

    /// Records a hand-over of a lock.
    pub fn push(&self, lock: u64, hand_over: &HandOver) {
        let ring = ring(lock);
        let Some(count) = self.0.at(ring) else { return };
        // Relaxed: orders nothing, because each place has its checksum.
        let number = count.fetch_add(1, Relaxed);
        let place = place(ring, number);
        let HandOver { at, release, .. } = *hand_over;
        let own = if hand_over.is_own { OWN } else { 0 };
        let who = u64::from(hand_over.holder) | u64::from(release.thread) << HOLDER | own;
        let put = |word: u32, value| self.0.store(place + word as usize, value);
        put(AT, at);
        put(WHO, who);
        put(SITE, release.site);
        put(SUM, sum(lock, number, [at, who, release.site]));
    }

    /// Returns the hand-overs of a lock, newest first.
    pub fn newest(&self, lock: u64) -> Newest<'a> {
        let ring = ring(lock);
        let next = self.0.load(ring);
        let last = next.saturating_sub(u64::from(COUNT));
        Newest {
            words: self.0,
            ring,
            lock,
            next,
            last,
        }
    }
}

impl Newest<'_> {
    /// Returns whether older hand-overs were overwritten.
    pub fn is_cut(&self) -> bool {
        self.last > 0
    }
}

impl Iterator for Newest<'_> {
    type Item = HandOver;

    fn next(&mut self) -> Option<HandOver> {
        while self.next > self.last {
            self.next -= 1;
            let place = place(self.ring, self.next);
            let get = |word: u32| self.words.load(place + word as usize);
            let [at, who, site] = [AT, WHO, SITE].map(get);
            if get(SUM) != sum(self.lock, self.next, [at, who, site]) {
                continue;
            }
            const MASK: u64 = (1 << HOLDER) - 1;
            let thread = (who >> HOLDER & MASK) as u32;
            return Some(HandOver {
                at,
                holder: (who & MASK) as u32,
                is_own: who & OWN != 0,
                release: Release { thread, site },
            });
        }
        None
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_wire::futex::WIDTH;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn hand_overs_of_one_lock_come_newest_first() {
        let room: Vec<_> = (0..WIDTH).map(|_| AtomicU64::new(0)).collect();
        let history = History::new(Words::new(&room));
        let hand_over = |at: u64| HandOver {
            at,
            holder: 7,
            is_own: at.is_multiple_of(2),
            release: Release {
                thread: 9,
                site: 40 + at,
            },
        };
        // Two locks of one ring.
        let locks: Vec<u64> = (0x1000..)
            .step_by(64)
            .filter(|lock| ring(*lock) == ring(0x1000))
            .take(2)
            .collect();
        assert_eq!(history.newest(locks[0]).count(), 0);
        for at in 0..6 {
            history.push(locks[at as usize % 2], &hand_over(at));
        }
        let found: Vec<HandOver> = history.newest(locks[1]).collect();
        assert_eq!(found, [5, 3, 1].map(hand_over));
        assert!(!history.newest(locks[1]).is_cut());
        for at in 0..u64::from(COUNT) + 3 {
            history.push(locks[0], &hand_over(at));
        }
        assert!(history.newest(locks[0]).is_cut());
        assert_eq!(history.newest(locks[0]).count(), COUNT as usize);
        assert_eq!(history.newest(locks[1]).count(), 0, "overwritten");
    }
}
