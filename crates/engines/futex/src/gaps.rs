//! Samples waits: selects the waits to time if timing all would exceed the budget.
//!
//! A *skipped* wait is counted, but not timed, because reading the clock is most of a timed wait's cost. A *gap* is the
//! number of waits skipped before a timed wait. Gaps are random, so that each wait of a repeated pattern is equally
//! likely to be timed; tiptoe, the tracing process, sets their mean. A timed wait's weight is one plus its gap. So
//! weighted sums are unbiased, even when the mean changes.
//!
//! A long wait with a large weight would distort the sum. So tiptoe looks at the waits in progress at intervals, and
//! marks those that it sees twice ([`crate::activities::Activities::mark_seen`]). A marked wait has weight 1. If a
//! marked wait was skipped, the mark contains an estimate of its beginning.
//!
//! tiptoe writes `GAP`, both tiptoe and the thread write a wait's `SINCE`, and the thread writes all other words. If a
//! signal handler waits while its thread decides whether to time a wait, the wrong wait may be timed. Such handlers are
//! too rare to bias the sums. All accesses are relaxed, because these words order nothing.

use tiptoe_wire::Words;
use tiptoe_wire::futex::activity::{GOES_ON, SKIPPED};
use tiptoe_wire::futex::head::{GAP, NEXT, NEXT_WEIGHT, SEED, WAITS};

/// The largest mean gap; a larger mean would save almost nothing.
pub const MOST: u64 = 63;

/// A wait's beginning, decoded from its `SINCE` word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// The wait was skipped, so the word has only the wait's number.
    Unknown,
    /// The beginning in ticks.
    At(u64),
    /// The beginning in ticks of a marked wait, estimated if the wait was skipped.
    LongAgo(u64),
}

impl Beginning {
    /// Decodes a `SINCE` word.
    #[inline(always)]
    pub fn of(word: u64) -> Beginning {
        match (word & GOES_ON, word & SKIPPED) {
            (0, 0) => Beginning::At(word),
            (0, _) => Beginning::Unknown,
            _ => Beginning::LongAgo(word & !(GOES_ON | SKIPPED)),
        }
    }
}

/// A thread's sampling state.
#[derive(Clone, Copy)]
pub struct Gaps<'a>(Words<'a>);

impl<'a> Gaps<'a> {
    /// Returns the sampling state in a thread's slab (its own counters).
    pub fn new(own: Words<'a>) -> Self {
        Gaps(own)
    }

    /// Sets the mean gap. Called only by tiptoe.
    pub fn widen(&self, mean: u64) {
        self.0.store(GAP as usize, mean.min(MOST));
    }

    /// Resets the words for the slab's next thread, which at first times each wait.
    pub fn forget(&self) {
        for word in [NEXT, GAP, NEXT_WEIGHT] {
            self.0.store(word as usize, 0);
        }
    }

    /// Returns whether the next wait is timed, unless a signal handler waits before it.
    #[inline(always)]
    pub(crate) fn is_next_timed(&self) -> bool {
        self.0.load(WAITS as usize) + 1 >= self.0.load(NEXT as usize)
    }

    /// Returns the `SINCE` word of wait `number` if the wait is skipped; `None` if it is timed.
    #[inline(always)]
    pub(crate) fn skip(&self, number: u64) -> Option<u64> {
        (number < self.0.load(NEXT as usize)).then_some(number | SKIPPED)
    }

    /// Returns a timed wait's weight, and draws the next gap.
    #[inline(always)]
    pub(crate) fn take_weight(&self, now: u64) -> u64 {
        let [weight, mean] = [NEXT_WEIGHT, GAP].map(|word| self.0.load(word as usize));
        if weight | mean != 0 {
            self.draw(now, mean);
        }
        weight.clamp(1, 2 * MOST + 1)
    }

    /// Draws a gap from 0 to twice the mean, uniformly.
    #[cold]
    #[inline(never)]
    fn draw(&self, now: u64, mean: u64) {
        if mean == 0 {
            return self.0.store(NEXT_WEIGHT as usize, 0);
        }
        let seed = self.0.load(SEED as usize).wrapping_add(now);
        // A linear congruential generator, whose upper bits are random.
        let seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0.store(SEED as usize, seed);
        let gap = ((seed >> 32) * (2 * mean.min(MOST) + 1)) >> 32;
        self.0.store(NEXT_WEIGHT as usize, gap + 1);
        let next = self.0.load(WAITS as usize).wrapping_add(gap + 1);
        self.0.store(NEXT as usize, next);
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

    fn wait(words: Words) -> Option<u64> {
        let number = words.count_own(WAITS as usize);
        let gaps = Gaps::new(words);
        gaps.skip(number).is_none().then(|| gaps.take_weight(1000))
    }

    #[test]
    fn without_a_gap_each_is_timed() {
        let room = room();
        let words = Words::new(&room);
        assert!((0..1000).all(|_| wait(words) == Some(1)));
    }

    #[test]
    fn each_wait_of_a_pattern_is_equally_likely() {
        const WAITS: u64 = if cfg!(miri) { 500 } else { 50_000 };
        for (mean, turns) in [(1, 2), (2, 3), (3, 4), (9, 10), (9, 2), (63, 64), (63, 3)] {
            let room = room();
            let words = Words::new(&room);
            Gaps::new(words).widen(mean);
            let mut timed = std::vec![0; turns as usize];
            let mut total_weight = 0;
            for number in 0..WAITS {
                if let Some(weight) = wait(words) {
                    timed[(number % turns) as usize] += 1;
                    total_weight += weight;
                }
            }
            assert!(WAITS - total_weight <= 2 * MOST, "{total_weight}");
            let even = WAITS as f64 / ((mean + 1) * turns) as f64;
            for number in timed {
                let off = (f64::from(number) - even).abs();
                assert!(
                    off < 6.0 * even.sqrt(),
                    "{mean} {turns}: {number} of {even}"
                );
            }
        }
    }

    #[test]
    fn a_removed_gap_ends_soon() {
        let room = room();
        let words = Words::new(&room);
        let gaps = Gaps::new(words);
        gaps.widen(u64::MAX);
        (0..100).for_each(|_| _ = wait(words));
        gaps.widen(0);
        let rest = (0..2 * MOST + 1).filter_map(|_| wait(words)).count();
        assert!(rest > 0);
        assert!((0..1000).all(|_| wait(words) == Some(1)));
        gaps.widen(MOST);
        (0..10).for_each(|_| _ = wait(words));
        gaps.forget();
        assert!((0..1000).all(|_| wait(words) == Some(1)));
    }
}
