//! Who last woke somebody, by address: what tells a waiter who ended its wait.
//!
//! A cell for each hash of an address, a cache line each. Nobody takes a cell: who wakes writes
//! its words one by one, as another one does at the same moment perhaps, and with them their sum.
//! Who has waited believes a cell whose sum is that of what it read. So no order is needed among
//! the words, and a wake neither waits for another CPU's line nor for its own earlier stores, as it
//! would for an exchange.
//!
//! Who waits takes down the sum that is there when it begins: where it is another one at the end,
//! somebody has woken those at the address meanwhile. So a wake reads no clock, which would be
//! half of what it costs; its stamp, that no other has, makes its sum one of its own.
//!
//! Words of two wakes at one address have the sum of neither: of stamp and call site, each
//! changes it in its own way. Words of wakes at two addresses have it once in 2^64 times.

use tiptoe_wire::Words;
use tiptoe_wire::futex::board::{ADDRESS, BITS, SITE, STAMP, SUM, WORDS};

use crate::HASH;

/// The cells, in the words of slab 0.
#[derive(Clone, Copy)]
pub struct Board<'a>(Words<'a>);

fn cell(address: u64) -> usize {
    // Words of one lock are next to each other, and are four bytes each.
    ((address >> 2).wrapping_mul(HASH) >> (64 - BITS)) as usize * WORDS as usize
}

/// Of one address no two stamps with one site have the same, and no two sites with one stamp. The
/// site is what is known last.
fn sum(address: u64, site: u64, stamp: u64) -> u64 {
    (address.wrapping_mul(HASH) ^ stamp).wrapping_mul(HASH) ^ site
}

impl<'a> Board<'a> {
    /// The board in the words of slab 0.
    pub fn new(words: Words<'a>) -> Self {
        Board(words)
    }

    /// Somebody is about to wake whoever waits at `address`, called from `site`. No other wake
    /// has this `stamp`.
    #[inline]
    pub fn note(&self, address: u64, site: u64, stamp: u64) {
        let cell = cell(address);
        let put = |word: u32, value| self.0.store(cell + word as usize, value);
        put(ADDRESS, address);
        put(SITE, site);
        put(STAMP, stamp);
        put(SUM, sum(address, site, stamp));
    }

    /// What is said of `address` now.
    #[inline]
    pub fn seen(&self, address: u64) -> u64 {
        self.0.load(cell(address) + SUM as usize)
    }

    /// From where somebody last woke those at `address` since this was `seen`, if that is known.
    #[inline]
    pub fn waker(&self, address: u64, seen: u64) -> Option<u64> {
        let cell = cell(address);
        let get = |word: u32| self.0.load(cell + word as usize);
        let [at, site, stamp, said] = [ADDRESS, SITE, STAMP, SUM].map(get);
        let believed = said != seen && said == sum(at, site, stamp);
        (believed && at == address).then_some(site)
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    #[test]
    fn the_last_wake_since_is_told() {
        let room: Vec<_> = (0..WORDS << BITS).map(|_| AtomicU64::new(0)).collect();
        let board = Board::new(Words::new(&room));
        let before = board.seen(0x7000);
        assert_eq!(board.waker(0x7000, before), None);
        board.note(0x7000, 1, 10);
        let between = board.seen(0x7000);
        board.note(0x7000, 2, 20);
        assert_eq!(board.waker(0x7000, before), Some(2));
        assert_eq!(board.waker(0x7000, between), Some(2));
        assert_eq!(
            board.waker(0x7000, board.seen(0x7000)),
            None,
            "before the wait"
        );
        assert_eq!(board.waker(0x7004, 0), None, "another one");
        // From the same place again.
        let last = board.seen(0x7000);
        board.note(0x7000, 2, 21);
        assert_eq!(board.waker(0x7000, last), Some(2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole board, word by word")]
    fn what_two_wrote_at_once_is_nobodys() {
        let room: Vec<_> = (0..WORDS << BITS).map(|_| AtomicU64::new(0)).collect();
        let words = Words::new(&room);
        let board = Board::new(words);
        let cell = |word: u32| cell(0x7000) + word as usize;
        let all = [ADDRESS, SITE, STAMP, SUM].map(cell);
        for (site, stamp) in [(1, 20), (2, 10), (2, 20)] {
            board.note(0x7000, 1, 10);
            let one = all.map(|word| words.load(word));
            board.note(0x7000, site, stamp);
            let other = all.map(|word| words.load(word));
            for which in 0..16 {
                let from = |i: usize| {
                    if which >> i & 1 == 0 {
                        one[i]
                    } else {
                        other[i]
                    }
                };
                (0..4).for_each(|i| words.store(all[i], from(i)));
                let found = board.waker(0x7000, 0);
                let read = (words.load(all[1]), words.load(all[2]));
                let is_one = [(1, 10), (site, stamp)].contains(&read);
                assert!(
                    found.is_none() || is_one,
                    "{site} {stamp} {which}: {found:?}"
                );
            }
        }
    }
}
