//! Who last woke somebody, by address: what tells a waiter who ended its wait.
//!
//! A cell for each hash of an address, a cache line each. Who wakes takes the cell, writes,
//! and gives it back with the time; where another one has it he goes on without, as two
//! wakes at one moment cannot be told apart anyway. Who has waited reads, and reads the
//! time again.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | A: a cell is complete | its time in [`Board::note`] | the first load of it in [`Board::waker`] |
//! | B: it was so all the while | the fence behind the taking exchange | the fence before the second load |
//! | C: its last writer is done | its time in [`Board::note`] | the taking exchange |

use tiptoe_wire::Words;
use tiptoe_wire::futex::board::{ADDRESS, BITS, SINCE, SITE, WORDS};

use crate::HASH;
use crate::primitive::Ordering::{Acquire, Relaxed, Release};
use crate::primitive::fence;

/// The time of a cell that is being written.
const TAKEN: u64 = u64::MAX;

/// The cells, in the words of slab 0.
#[derive(Clone, Copy)]
pub struct Board<'a>(Words<'a>);

fn cell(address: u64) -> usize {
    // Words of one lock are next to each other, and are four bytes each.
    ((address >> 2).wrapping_mul(HASH) >> (64 - BITS)) as usize * WORDS as usize
}

impl<'a> Board<'a> {
    /// The board in the words of slab 0.
    pub fn new(words: Words<'a>) -> Self {
        Board(words)
    }

    /// Somebody is about to wake whoever waits at `address`, called from `site`.
    pub fn note(&self, address: u64, site: u64, now: u64) {
        let cell = cell(address);
        let Some(since) = self.0.at(cell + SINCE as usize) else {
            return;
        };
        let before = since.load(Relaxed); // the exchange looks again
        if before == TAKEN
            || since
                .compare_exchange(before, TAKEN, Acquire, Relaxed)
                .is_err()
        {
            return; // edge C
        }
        fence(Release); // edge B
        self.0.store(cell + ADDRESS as usize, address);
        self.0.store(cell + SITE as usize, site);
        since.store(now, Release); // edges A and C
    }

    /// From where somebody woke those at `address` in this time, if that is known.
    pub fn waker(&self, address: u64, from: u64, until: u64) -> Option<u64> {
        let cell = cell(address);
        let since = self.0.at(cell + SINCE as usize)?;
        let then = since.load(Acquire); // edge A
        let at = self.0.load(cell + ADDRESS as usize);
        let site = self.0.load(cell + SITE as usize);
        fence(Acquire); // edge B
        let still = since.load(Relaxed) == then; // after the fence
        (still && at == address && (from..=until).contains(&then)).then_some(site)
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    #[test]
    fn the_last_wake_in_the_time_is_told() {
        let room: Vec<_> = (0..WORDS << BITS).map(|_| AtomicU64::new(0)).collect();
        let board = Board::new(Words::new(&room));
        assert_eq!(board.waker(0x7000, 0, 99), None);
        board.note(0x7000, 1, 10);
        board.note(0x7000, 2, 20);
        assert_eq!(board.waker(0x7000, 15, 25), Some(2));
        assert_eq!(board.waker(0x7000, 21, 25), None, "before the wait");
        assert_eq!(board.waker(0x7000, 5, 15), None, "behind it");
        assert_eq!(board.waker(0x7004, 0, 99), None, "another one");
    }
}
