//! Which of a thread's waits are timed, where there are more of them than the budget pays for.
//!
//! A wait that is *passed over* is counted as any other is, and reads no clock: that is all that
//! counting costs less. Between two that are timed as many are passed over as chance says, on
//! average as many as tiptoe says; so whatever turns a program takes, each of its waits is as
//! likely to be timed as any other. One that is timed stands for those that were passed over in
//! front of it, and for itself: sums of all that stand for others are what sums of all would be,
//! give or take, also where the gap changes meanwhile.
//!
//! One long wait that stood for many would make that a large take. So tiptoe looks on: a wait that
//! it finds twice stands for itself alone, whether it is timed or not, and of one that is not tiptoe
//! notes since when it goes on ([`crate::activities::Activities::goes_on`]). Those between two looks
//! are told by chance, all others for certain.
//!
//! | word | written by | holds |
//! |---|---|---|
//! | `GAP` | tiptoe | how many are passed over on average, or 0 |
//! | `NEXT`, `STANDS_FOR`, `SEED` | the thread | which wait is timed next, for how many, out of what |
//! | a wait's `SINCE` | the thread; tiptoe by an exchange | its beginning: [`Beginning`] |
//!
//! A handler may come in at each instruction: it takes the wait that is to be timed for one of its
//! own perhaps, and both or neither are. Nothing is ordered by any of these words.

use tiptoe_wire::Words;
use tiptoe_wire::futex::activity::{GOES_ON, PASSED_OVER};
use tiptoe_wire::futex::head::{GAP, NEXT, SEED, STANDS_FOR, WAITS};

/// So many are passed over on average, at most: beyond that there is nothing more to be gained.
pub const MOST: u64 = 63;

/// What a wait has as its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It was passed over, and is known by this.
    Unknown,
    /// Its time, in ticks.
    At(u64),
    /// Its time, of one that tiptoe has found twice.
    LongAgo(u64),
}

impl Beginning {
    /// What a word says.
    #[inline(always)]
    pub fn of(word: u64) -> Beginning {
        match (word & GOES_ON, word & PASSED_OVER) {
            (0, 0) => Beginning::At(word),
            (0, _) => Beginning::Unknown,
            _ => Beginning::LongAgo(word & !(GOES_ON | PASSED_OVER)),
        }
    }
}

/// The gaps between the waits of a thread that are timed.
#[derive(Clone, Copy)]
pub struct Gaps<'a>(Words<'a>);

impl<'a> Gaps<'a> {
    /// Those in the words of a thread.
    pub fn new(own: Words<'a>) -> Self {
        Gaps(own)
    }

    /// So many are to be passed over on average. (tiptoe)
    pub fn widen(&self, mean: u64) {
        self.0.store(GAP as usize, mean.min(MOST));
    }

    /// The words are another thread's: each of its waits is timed.
    pub fn forget(&self) {
        for word in [NEXT, GAP, STANDS_FOR] {
            self.0.store(word as usize, 0);
        }
    }

    /// What stands for the beginning of the wait of this number, if it is passed over.
    #[inline(always)]
    pub(crate) fn pass_over(&self, number: u64) -> Option<u64> {
        (number < self.0.load(NEXT as usize)).then_some(number | PASSED_OVER)
    }

    /// The wait is timed, from `now` on: how many it stands for.
    #[inline(always)]
    pub(crate) fn stands_for(&self, now: u64) -> u64 {
        let [stands_for, mean] = [STANDS_FOR, GAP].map(|word| self.0.load(word as usize));
        if stands_for | mean != 0 {
            self.draw(now, mean);
        }
        stands_for.clamp(1, 2 * MOST + 1)
    }

    /// Draws the next gap: any from none to twice the mean is as likely.
    #[cold]
    #[inline(never)]
    fn draw(&self, now: u64, mean: u64) {
        if mean == 0 {
            return self.0.store(STANDS_FOR as usize, 0);
        }
        let seed = self.0.load(SEED as usize).wrapping_add(now);
        // A linear congruential generator, of which the upper bits are good.
        let seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0.store(SEED as usize, seed);
        let gap = ((seed >> 32) * (2 * mean.min(MOST) + 1)) >> 32;
        self.0.store(STANDS_FOR as usize, gap + 1);
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

    /// A wait begins, at a clock that helps nobody: how many it stands for.
    fn wait(words: Words) -> Option<u64> {
        let number = words.count_own(WAITS as usize);
        let gaps = Gaps::new(words);
        gaps.pass_over(number)
            .is_none()
            .then(|| gaps.stands_for(1000))
    }

    #[test]
    fn without_a_gap_each_is_timed() {
        let room = room();
        let words = Words::new(&room);
        assert!((0..1000).all(|_| wait(words) == Some(1)));
    }

    #[test]
    fn each_is_as_likely_as_any_other_whatever_turns_they_take() {
        const WAITS: u64 = if cfg!(miri) { 500 } else { 50_000 };
        for (mean, turns) in [(1, 2), (2, 3), (3, 4), (9, 10), (9, 2), (63, 64), (63, 3)] {
            let room = room();
            let words = Words::new(&room);
            Gaps::new(words).widen(mean);
            let mut timed = std::vec![0; turns as usize];
            let mut stood = 0;
            for number in 0..WAITS {
                if let Some(stands_for) = wait(words) {
                    timed[(number % turns) as usize] += 1;
                    stood += stands_for;
                }
            }
            assert!(WAITS - stood <= 2 * MOST, "{stood}");
            let even = WAITS as f64 / ((mean + 1) * turns) as f64;
            for number in timed {
                // Six times as far as chance goes.
                let off = (f64::from(number) - even).abs();
                assert!(
                    off < 6.0 * even.sqrt(),
                    "{mean} {turns}: {number} of {even}"
                );
            }
        }
    }

    #[test]
    fn a_gap_that_goes_away_is_soon_over() {
        let room = room();
        let words = Words::new(&room);
        let gaps = Gaps::new(words);
        gaps.widen(u64::MAX);
        (0..100).for_each(|_| _ = wait(words));
        gaps.widen(0);
        let rest = (0..2 * MOST + 1).filter_map(|_| wait(words)).count();
        assert!(rest > 0);
        assert!((0..1000).all(|_| wait(words) == Some(1)));
        // Another thread's.
        gaps.widen(MOST);
        (0..10).for_each(|_| _ = wait(words));
        gaps.forget();
        assert!((0..1000).all(|_| wait(words) == Some(1)));
    }
}
