//! Changes by the program's loader: a loading thread reports new libraries, and waits for their probes. [`crate`]
//! lists the edges.
//!
//! The loading thread calls the functions that store, and [`Data::served`]. tiptoe calls the functions that load, and
//! [`Data::serve`]. The loader's lock lets only one thread load libraries at a time.

use core::sync::atomic::AtomicU32;

use super::Data;
use crate::primitive::Ordering::{Acquire, Release};

const REPORTED: usize = 16;
const SERVED: usize = 17;
const TURN: usize = 18;
const GIVEN_UP: usize = 19;
const SINCE: usize = 20;
const LOOKS: usize = 21;
const MISSED: usize = 22;
/// The first change whose libraries are in the list at `FRESH`.
const FRESH_FROM: usize = 63;
const FRESH: usize = 64;
const MOST_FRESH: usize = 512 - FRESH - 1;

impl<'a> Data<'a> {
    /// Adds a library to the next report.
    pub fn put_fresh(&self, base: u64) {
        let next = self.reported() + 1;
        if self.served() + 1 == next && self.words.load(FRESH_FROM) != next {
            self.words.store(FRESH, 0);
            self.words.store(FRESH_FROM, next);
        }
        let count = self.words.load(FRESH) as usize;
        if count < MOST_FRESH {
            self.words.store(FRESH + 1 + count, base);
        }
        self.words.store(FRESH, count as u64 + 1);
    }

    /// Returns the addresses of libraries that wait for probes; `None` if there are too many. The caller must call
    /// [`Data::reported`] first, because its Acquire makes the list visible.
    pub fn fresh(&self) -> Option<impl Iterator<Item = u64>> {
        let count = self.words.load(FRESH) as usize;
        let words = self.words;
        let bases = (0..count).map(move |index| words.load(FRESH + 1 + index));
        (count <= MOST_FRESH).then_some(bases)
    }

    /// Reports a change at `now` (ns of CLOCK_MONOTONIC); returns its number. The caller must then wake
    /// [`Data::doorbell`].
    pub fn report(&self, now: u64) -> u64 {
        let reported = self.reported();
        if self.served() == reported {
            self.words.store(SINCE, now);
        }
        if let Some(word) = self.words.at(REPORTED) {
            // Release: pairs with `reported` (edge D).
            word.store(reported + 1, Release);
        }
        reported + 1
    }

    /// Returns the number of reported changes.
    pub fn reported(&self) -> u64 {
        // Acquire: pairs with `report` (edge D).
        self.words.at(REPORTED).map_or(0, |word| word.load(Acquire))
    }

    /// Marks all changes up to `change` as done.
    pub fn serve(&self, change: u64) {
        if let Some(word) = self.words.at(SERVED) {
            // Release: pairs with `served` (edge E).
            word.store(change, Release);
        }
    }

    /// Returns the last change that is done.
    pub fn served(&self) -> u64 {
        // Acquire: pairs with `serve` (edge E).
        self.words.at(SERVED).map_or(0, |word| word.load(Acquire))
    }

    /// Returns the futex on which tiptoe waits for reports.
    pub fn doorbell(&self) -> Option<&'a AtomicU32> {
        self.words.futex(REPORTED)
    }

    /// Returns the futex on which a loading thread waits for its probes.
    pub fn turn(&self) -> Option<&'a AtomicU32> {
        self.words.futex(TURN)
    }

    /// Records that the loading thread stops waiting for a change.
    pub fn give_up(&self, change: u64) {
        self.words.store(GIVEN_UP, change);
        self.miss();
    }

    /// Counts a library that lacks its probes.
    pub fn miss(&self) {
        self.words.store(MISSED, self.missed().wrapping_add(1));
    }

    /// Returns the number of libraries that lack their probes.
    pub fn missed(&self) -> u64 {
        self.words.load(MISSED)
    }

    /// Returns the last change for which a thread stopped waiting.
    pub fn given_up(&self) -> u64 {
        self.words.load(GIVEN_UP)
    }

    /// Returns when the oldest unserved change was reported.
    pub fn since(&self) -> u64 {
        self.words.load(SINCE)
    }

    /// Returns a number that is odd while the loader's list of libraries changes.
    pub fn looks(&self) -> u64 {
        self.words.load(LOOKS)
    }

    /// Marks that the list of libraries begins or ends changing.
    pub fn set_changing(&self, changing: bool) {
        let looks = self.looks();
        let next = if changing { looks | 1 } else { (looks | 1) + 1 };
        self.words.store(LOOKS, next);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Data, Geometry, Words};
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole segment, word by word")]
    fn changes_are_reported_and_served_in_order() {
        let geometry = Geometry {
            slots: 4,
            slabs: 2,
            rings: false,
            hits: false,
        };
        let words: Vec<AtomicU64> = (0..geometry.data_bytes() / 8)
            .map(|_| AtomicU64::new(0))
            .collect();
        let data = Data::new(Words::new(&words), geometry).unwrap();
        data.set_changing(true);
        assert_eq!(data.looks() % 2, 1);
        data.put_fresh(0x1000);
        data.put_fresh(0x2000);
        assert_eq!(data.report(77), 1);
        assert_eq!(data.report(99), 2);
        let fresh: Vec<u64> = data.fresh().unwrap().collect();
        assert_eq!(
            (fresh.as_slice(), data.since()),
            (&[0x1000, 0x2000][..], 77)
        );
        data.serve(2);
        data.set_changing(false);
        data.put_fresh(0x3000);
        assert_eq!(data.fresh().unwrap().collect::<Vec<_>>(), [0x3000]);
        assert_eq!(
            (data.looks() % 2, data.reported(), data.served()),
            (0, 2, 2)
        );
        (0..600).for_each(|base| data.put_fresh(base));
        assert_eq!(data.report(99), 3);
        assert!((0..600).map(|base| data.put_fresh(base)).count() == 600 && data.fresh().is_none());
    }
}
