//! Hand-overs of locks: which thread holds a lock from which time on.
//!
//! A thread that releases a lock wakes a thread that waits for it. The woken thread records which thread holds the lock
//! now: itself, or a faster thread. A thread that took the lock after a sleep records its release.
//!
//! Each hash of a lock's address has a ring of records. A thread takes a place in the ring by one addition, and stores
//! the words there one by one, with a checksum. Readers skip a place whose checksum does not match, because another
//! thread is writing there. So the words need no ordering.
//!
//! INVARIANT: the checksum covers the lock and the hand-over's number, so older hand-overs and mixed words do not
//! match, except with a chance of one in 2^64.
//!
//! A busy lock overwrites other locks' hand-overs in the ring. To notice this, a ring's locks are divided into
//! families, and each family counts its hand-overs. A thread saves the counts of its lock's ring and family before it
//! waits ([`History::mark`]). If it later finds as many hand-overs as the family has counted since, none was
//! overwritten. If it finds fewer, and more places were taken since the mark than the ring has, some may have been
//! overwritten.
//!
//! A thread that is preempted after it counted its hand-over may take a place only after a waiter's mark. The waiter
//! skips this hand-over, whose time is before the wait.
//!
//! | edge | from | to |
//! |---|---|---|
//! | A | counting in the family, then taking a place | a reader that sees the place sees the count |
//! | B | taking a place, then overwriting it | a reader that misses the old words sees the place taken |

use tiptoe_wire::Words;
use tiptoe_wire::futex::history::{
    AT, BITS, COUNT, FAMILIES, HOLDER, OWN, RING_WORDS, RINGS, SITE, SUM, WHO, WORDS,
};

use crate::HASH;
use crate::primitive::Ordering::{Acquire, Relaxed, Release as Published};
use crate::primitive::fence;

/// Names the holder of a lock from a time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    /// The time of the hand-over, in ticks.
    pub at: u64,
    /// The new holder: a thread's id, `READERS`, `NOBODY`, or 0 if unknown.
    pub holder: u32,
    /// Whether the holder itself recorded the hand-over.
    pub is_own: bool,
    /// The former holder's release.
    pub release: Release,
}

/// A release of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Release {
    /// The thread that released the lock, or 0 if unknown.
    pub thread: u32,
    /// The thread's call site.
    pub site: u64,
}

/// The rings, in slab 0, which all threads share.
#[derive(Clone, Copy)]
pub struct History<'a>(Words<'a>);

/// Hand-overs of one lock, the last recorded first.
pub struct HandOvers<'a> {
    words: Words<'a>,
    ring: usize,
    lock: u64,
    next: u64,
    last: u64,
    mark: u32,
    after: u64,
    /// How many hand-overs the family has counted since the mark, less those found.
    left: u32,
}

const AHEAD: usize = 4;

/// Hand-overs, newest first. Records may be out of order, because a thread may be preempted between reading the clock
/// and recording. So the iterator returns the newest of the next [`AHEAD`] records.
pub struct InOrder<'a> {
    hand_overs: HandOvers<'a>,
    ahead: [Option<HandOver>; AHEAD],
}

pub(crate) fn ring(lock: u64) -> (usize, usize) {
    let hash = (lock >> 2).wrapping_mul(HASH);
    let ring = match BITS {
        0 => 0,
        bits => hash >> (64 - bits),
    };
    let family = ((hash << BITS >> 32) * u64::from(FAMILIES)) >> 32;
    let ring = RINGS as usize + ring as usize * RING_WORDS as usize;
    (ring, ring + 1 + family as usize)
}

fn record_word(ring: usize, number: u64) -> usize {
    let first = ring + 1 + FAMILIES as usize;
    first + (number % u64::from(COUNT)) as usize * WORDS as usize
}

fn sum(lock: u64, number: u64, [at, who, site]: [u64; 3]) -> u64 {
    let words = [number, at, who, site].into_iter();
    words.fold(lock, |sum, word| sum.wrapping_mul(HASH) ^ word)
}

impl<'a> History<'a> {
    /// Returns slab 0's rings.
    pub fn new(words: Words<'a>) -> Self {
        History(words)
    }

    /// Records a hand-over.
    pub fn push(&self, lock: u64, hand_over: &HandOver) {
        let (ring, family) = ring(lock);
        let (Some(count), Some(family)) = (self.0.at(ring), self.0.at(family)) else {
            return;
        };
        // Relaxed: the next addition publishes this addition.
        family.fetch_add(1, Relaxed);
        // Release: pairs with the Acquire in `since` (edge A).
        let number = count.fetch_add(1, Published);
        // Release: pairs with the Acquire in `is_cut` (edge B).
        fence(Published);
        let place = record_word(ring, number);
        let HandOver { at, release, .. } = *hand_over;
        let own = if hand_over.is_own { OWN } else { 0 };
        let who = u64::from(hand_over.holder) | u64::from(release.thread) << HOLDER | own;
        let put = |word: u32, value| self.0.store(place + word as usize, value);
        put(AT, at);
        put(WHO, who);
        put(SITE, release.site);
        put(SUM, sum(lock, number, [at, who, release.site]));
    }

    /// Returns the counts of hand-overs in the lock's ring and family, for [`History::since`].
    #[inline]
    pub fn mark(&self, lock: u64) -> u64 {
        let (ring, family) = ring(lock);
        let [ring, family] = [ring, family].map(|count| self.0.load(count));
        ring & u64::from(u32::MAX) | family << 32
    }

    /// Returns a lock's hand-overs later than `after`, the last recorded first. `mark` must have been read before the
    /// time `after`, or be 0.
    pub fn since(&self, lock: u64, mark: u64, after: u64) -> HandOvers<'a> {
        let (ring, family) = ring(lock);
        // Acquire: pairs with the Release in `push` (edge A).
        let next = self.0.at(ring).map_or(0, |count| count.load(Acquire));
        let left = (self.0.load(family) as u32).wrapping_sub((mark >> 32) as u32);
        let new = match left {
            // Other families took all places since the mark.
            0 => 0,
            _ => (next as u32).wrapping_sub(mark as u32).min(COUNT),
        };
        HandOvers {
            words: self.0,
            ring,
            lock,
            next,
            last: next.saturating_sub(new.into()),
            mark: mark as u32,
            after,
            left,
        }
    }
}

impl HandOvers<'_> {
    /// Returns whether the lock's family had no hand-over since the mark.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Returns whether hand-overs of the lock's family may have been overwritten. Must be called after all hand-overs
    /// were read.
    pub fn is_cut(&self) -> bool {
        // Acquire: pairs with the Release in `push` (edge B).
        fence(Acquire);
        let new = (self.words.load(self.ring) as u32).wrapping_sub(self.mark);
        self.left > 0 && new > COUNT
    }
}

impl<'a> InOrder<'a> {
    /// Orders hand-overs by time.
    pub fn new(hand_overs: HandOvers<'a>) -> Self {
        let ahead = [None; AHEAD];
        InOrder { hand_overs, ahead }
    }

    /// Returns what [`HandOvers::is_cut`] returns.
    pub fn is_cut(&self) -> bool {
        self.hand_overs.is_cut()
    }
}

impl Iterator for InOrder<'_> {
    type Item = HandOver;

    fn next(&mut self) -> Option<HandOver> {
        for place in self.ahead.iter_mut().filter(|place| place.is_none()) {
            *place = self.hand_overs.next();
        }
        let places = self.ahead.iter_mut();
        let latest = places.max_by_key(|place| place.map(|hand_over| hand_over.at));
        latest.and_then(Option::take)
    }
}

impl Iterator for HandOvers<'_> {
    type Item = HandOver;

    fn next(&mut self) -> Option<HandOver> {
        while self.next > self.last {
            self.next -= 1;
            let place = record_word(self.ring, self.next);
            let get = |word: u32| self.words.load(place + word as usize);
            let [at, who, site] = [AT, WHO, SITE].map(get);
            if get(SUM) != sum(self.lock, self.next, [at, who, site]) || at <= self.after {
                continue;
            }
            self.left = self.left.saturating_sub(1);
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

    fn room() -> Vec<AtomicU64> {
        (0..WIDTH).map(|_| AtomicU64::new(0)).collect()
    }

    fn history(room: &[AtomicU64]) -> History<'_> {
        History::new(Words::new(room))
    }

    fn hand_over(at: u64) -> HandOver {
        HandOver {
            at,
            holder: 7,
            is_own: at.is_multiple_of(2),
            release: Release {
                thread: 9,
                site: 40 + at,
            },
        }
    }

    /// Locks of one ring: two of one family, then one of another.
    fn locks() -> [u64; 3] {
        let first = 0x1000;
        let (of_ring, of_family) = ring(first);
        let mut others = (first..).step_by(64).skip(1);
        let mut of = |is_same| {
            let found = others.by_ref();
            let is =
                |lock: &u64| ring(*lock).0 == of_ring && (ring(*lock).1 == of_family) == is_same;
            found.find(is).expect("there are many")
        };
        [first, of(true), of(false)]
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn hand_overs_of_one_lock_come_newest_first() {
        let room = room();
        let history = history(&room);
        let locks = locks();
        assert_eq!(history.since(locks[0], 0, 0).count(), 0);
        for at in 0..6 {
            history.push(locks[at as usize % 2], &hand_over(at));
        }
        let found: Vec<HandOver> = history.since(locks[1], 0, 0).collect();
        assert_eq!(found, [5, 3, 1].map(hand_over));
        let mark = history.mark(locks[1]);
        history.push(locks[1], &hand_over(7));
        let found: Vec<HandOver> = history.since(locks[1], mark, 0).collect();
        assert_eq!(found, [hand_over(7)]);
    }

    fn is_cut(history: &History, lock: u64, mark: u64) -> bool {
        let mut all = history.since(lock, mark, 0);
        all.by_ref().for_each(drop);
        all.is_cut()
    }

    /// Regression: a ring that had ever been full counted as overwritten.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn hand_overs_before_a_wait_were_missed() {
        let room = room();
        let history = history(&room);
        let [busy, same, other] = locks();
        let fill = || (0..=u64::from(COUNT)).for_each(|at| history.push(busy, &hand_over(at)));
        fill();
        let marks = [busy, same, other].map(|lock| (lock, history.mark(lock)));
        assert!(
            marks
                .iter()
                .all(|(lock, mark)| !is_cut(&history, *lock, *mark))
        );
        // Hand-overs of one family do not hide those of another.
        fill();
        assert_eq!(
            marks.map(|(lock, mark)| is_cut(&history, lock, mark)),
            [true, true, false]
        );
        history.push(other, &hand_over(1));
        assert!(!is_cut(&history, other, marks[2].1), "it is still there");
        fill();
        assert!(is_cut(&history, other, marks[2].1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn hand_overs_overwritten_while_they_were_read_were_not_missed() {
        let room = room();
        let history = history(&room);
        let [lock, ..] = locks();
        (1..=u64::from(COUNT)).for_each(|at| history.push(lock, &hand_over(at)));
        let mut all = history.since(lock, 0, 0);
        history.push(lock, &hand_over(1000));
        assert_eq!(all.by_ref().count(), COUNT as usize - 1);
        assert!(all.is_cut());
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn a_hand_over_from_before_the_mark_hid_a_later_one() {
        let room = room();
        let history = history(&room);
        let [lock, _, other] = locks();
        for (others, want) in [(0, &[20][..]), (u64::from(COUNT) - 1, &[])] {
            // The mark already counts the hand-over that is recorded last.
            let mark = history.mark(lock) + (1 << 32);
            history.push(lock, &hand_over(20));
            (0..others).for_each(|at| history.push(other, &hand_over(at)));
            history.push(lock, &hand_over(5));
            let mut all = history.since(lock, mark, 10);
            let found: Vec<u64> = all.by_ref().map(|one| one.at).collect();
            assert_eq!((&found[..], all.is_cut()), (want, others > 0));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole slab, word by word")]
    fn late_hand_overs_come_in_order() {
        let room = room();
        let history = history(&room);
        let check = |recorded: &[u64], want: &[u64]| {
            let mark = history.mark(0x1000);
            for at in recorded {
                history.push(0x1000, &hand_over(*at));
            }
            let ordered = InOrder::new(history.since(0x1000, mark, 0));
            let found: Vec<u64> = ordered.map(|hand_over| hand_over.at).collect();
            assert_eq!(found, want);
        };
        check(&[], &[]);
        check(&[1, 2, 3, 4, 5, 6], &[6, 5, 4, 3, 2, 1]);
        check(&[2, 3, 4, 1], &[4, 3, 2, 1]);
        check(&[6, 1, 2, 3, 5, 4], &[5, 4, 6, 3, 2, 1]);
    }
}
