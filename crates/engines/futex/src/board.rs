//! The last wake at each address, from which a waiter learns the call site that ended its wait.
//!
//! Each hash of an address has a cell, which is a cache line. A waker takes no lock: it stores a cell's words one by
//! one, with their checksum. Readers ignore cells whose checksum does not match, so the words need no ordering.
//!
//! A waiter saves its cell's checksum before it waits. If the cell has another valid checksum for this address
//! afterwards, a thread woke the address in between. No times are compared, so a wake's hook need not read the clock,
//! which would double its cost.
//!
//! INVARIANT: if a cell's words are from two wakes, its checksum does not match. This is certain if only one word
//! differs, because each word changes the checksum. Otherwise a match has a chance of one in 2^64.

use tiptoe_wire::Words;
use tiptoe_wire::futex::RELEASED;
use tiptoe_wire::futex::board::{ADDRESS, BITS, SITE, STAMP, SUM, WORDS};

use crate::HASH;

/// The cells, in slab 0, which all threads share.
#[derive(Clone, Copy)]
pub struct Board<'a>(Words<'a>);

/// A recorded wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The waker's call site.
    pub site: u64,
    /// The wake's unique number.
    pub stamp: u64,
}

fn cell(address: u64) -> usize {
    // Futex words have four bytes and may be adjacent, so only two bits are dropped.
    ((address >> 2).wrapping_mul(HASH) >> (64 - BITS)) as usize * WORDS as usize
}

/// The site, which the hook knows last, is mixed in last.
fn sum(address: u64, site: u64, stamp: u64) -> u64 {
    (address.wrapping_mul(HASH) ^ stamp).wrapping_mul(HASH) ^ site
}

impl<'a> Board<'a> {
    /// Returns slab 0's board.
    pub fn new(words: Words<'a>) -> Self {
        Board(words)
    }

    pub(crate) fn words(&self) -> Words<'a> {
        self.0
    }

    /// Records a wake by call site `site`. The stamp must be unique: a waiter misses a wake that does not change the
    /// checksum.
    #[inline]
    pub fn note(&self, address: u64, site: u64, stamp: u64) {
        let cell = cell(address);
        let put = |word: u32, value| self.0.store(cell + word as usize, value);
        put(ADDRESS, address);
        put(SITE, site);
        put(STAMP, stamp);
        put(SUM, sum(address, site, stamp));
    }

    /// Returns when the lock that `--hold` names was last released, in ticks, or 0. Only the lock's holder may call
    /// this.
    #[inline]
    pub fn released(&self) -> u64 {
        self.0.load(RELEASED as usize)
    }

    /// Records a release of the lock that `--hold` names.
    #[inline]
    pub fn note_release(&self, now: u64) {
        self.0.store(RELEASED as usize, now);
    }

    /// Returns the checksum in the address's cell.
    #[inline]
    pub fn seen(&self, address: u64) -> u64 {
        self.0.load(cell(address) + SUM as usize)
    }

    /// Returns the last wake since the checksum was `seen`; `None` without a wake, or if the checksum does not match.
    #[inline]
    pub fn wake(&self, address: u64, seen: u64) -> Option<Wake> {
        let cell = cell(address);
        let get = |word: u32| self.0.load(cell + word as usize);
        let [at, site, stamp, checksum] = [ADDRESS, SITE, STAMP, SUM].map(get);
        let is_valid = checksum != seen && checksum == sum(at, site, stamp);
        (is_valid && at == address).then_some(Wake { site, stamp })
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    fn waker(board: &Board, address: u64, seen: u64) -> Option<u64> {
        board.wake(address, seen).map(|wake| wake.site)
    }

    #[test]
    fn the_last_wake_since_the_checksum_is_returned() {
        let room: Vec<_> = (0..WORDS << BITS).map(|_| AtomicU64::new(0)).collect();
        let board = Board::new(Words::new(&room));
        let before = board.seen(0x7000);
        assert_eq!(waker(&board, 0x7000, before), None);
        board.note(0x7000, 1, 10);
        let between = board.seen(0x7000);
        board.note(0x7000, 2, 20);
        assert_eq!(waker(&board, 0x7000, before), Some(2));
        assert_eq!(waker(&board, 0x7000, between), Some(2));
        assert_eq!(
            waker(&board, 0x7000, board.seen(0x7000)),
            None,
            "all wakes precede the wait"
        );
        assert_eq!(waker(&board, 0x7004, 0), None, "another address");
        let last = board.seen(0x7000);
        board.note(0x7000, 2, 21);
        assert_eq!(waker(&board, 0x7000, last), Some(2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole board, word by word")]
    fn a_cell_torn_by_two_wakers_is_ignored() {
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
                let found = waker(&board, 0x7000, 0);
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
