//! Records of single calls: a ring for each thread, after its counters.
//!
//! The thread is the one writer, tiptoe the one reader. Trampolines, the generated code at patched places
//! (`code/patch`'s `recorded.rs`), write as [`Ring::push`] does:
//!
//! 1. *reserve*: advance the head, unless it is [`CELLS`] ahead of the tail. A trampoline uses `cmpxchg` without
//!    `lock`, because only a signal handler on its thread can race;
//! 2. write the cell; its second word, which has the position, last.
//!
//! | word of a cell | holds |
//! |---|---|
//! | 0 | the time in ticks |
//! | 1 | low half: the probe's slot (number of its first counter); high half: the low half of the position plus one |
//! | 2, 3 | the first two arguments |
//!
//! A cell with a slot below the first probe's announces the later records' thread: its id in word 0, its name in words
//! 2 and 3.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | F: a cell is complete | [`Ring::push`] | [`Ring::at`] |
//! | G: a cell was read | [`Ring::set_tail`] | [`Ring::push`] |
//!
//! # Cells that are never written
//!
//! A signal handler that jumps out of a write leaves the cell incomplete. After some readings the reader gives up the
//! cell for all laps, because a running handler might still return to the write. Each lap counts the cell as lost.

use crate::FIRST_SLOT;
use crate::primitive::Ordering::{Acquire, Relaxed, Release};
use crate::words::Words;

/// Cells of a ring, a power of two.
pub const CELLS: usize = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 2,
    (_, true) => 64,
    _ => 8192,
};
/// Words of a cell.
pub const CELL_WORDS: usize = 4;

/// A ring's words in its slab, the thread's counters. The cells are at a fixed
/// [distance](crate::Geometry::ring_offset) from the slab, so trampolines need not contain the cells' address.
pub mod slab {
    /// The next free position.
    pub const HEAD: usize = 2;
    /// The next position to read.
    pub const TAIL: usize = 3;
}

/// A slab's words for a recording probe.
pub mod words {
    /// Recorded calls.
    pub const RECORDED: u32 = 0;
    /// Calls for which the ring had no room.
    pub const LOST: u32 = 1;
    /// Calls without a ring or credit ([`crate::Data::set_credit`]).
    pub const ONLY_COUNTED: u32 = 2;
    /// Number of words.
    pub const ALL: u32 = 3;
}

/// A recorded call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The time in ticks.
    pub at: u64,
    /// The probe's slot.
    pub slot: u32,
    /// The first two arguments.
    pub args: [u64; 2],
}

/// A cell's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The following records' thread.
    Thread {
        /// The thread's id in the target's pid namespace.
        tid: u32,
        /// The thread's name.
        comm: [u8; 16],
    },
    /// A call.
    Call(Record),
}

/// A slab's ring.
#[derive(Clone, Copy)]
pub struct Ring<'a> {
    slab: Words<'a>,
    cells: Words<'a>,
}

impl<'a> Ring<'a> {
    pub(crate) fn new(slab: Words<'a>, cells: Words<'a>) -> Option<Ring<'a>> {
        let fits = slab.len() > slab::TAIL && cells.len() == CELLS * CELL_WORDS;
        fits.then_some(Ring { slab, cells })
    }

    /// Adds a call as trampolines do; `false` if the ring is full.
    pub fn push(&self, record: &Record) -> bool {
        self.write([
            record.at,
            record.slot.into(),
            record.args[0],
            record.args[1],
        ])
    }

    /// Announces the next records' thread; `false` if the ring is full.
    pub fn announce(&self, tid: u32, comm: [u64; 2]) -> bool {
        self.write([tid.into(), 0, comm[0], comm[1]])
    }

    fn write(&self, cell: [u64; CELL_WORDS]) -> bool {
        let Some(position) = self.reserve() else {
            return false;
        };
        let at = cell_of(position);
        for word in [0, 2, 3] {
            self.cells.store(at + word, cell[word]);
        }
        if let Some(word) = self.cells.at(at + 1) {
            // Release: pairs with `at` (edge F).
            word.store(cell[1] | mark(position), Release);
        }
        true
    }

    fn reserve(&self) -> Option<u64> {
        let (head, tail) = (self.slab.at(slab::HEAD)?, self.slab.at(slab::TAIL)?);
        loop {
            let position = head.load(Relaxed); // Relaxed: only this thread stores the head
            // Acquire: pairs with `set_tail` (edge G).
            if position.wrapping_sub(tail.load(Acquire)) >= CELLS as u64 {
                return None;
            }
            let next = position.wrapping_add(1);
            // Relaxed: only handlers on this thread compete.
            if head
                .compare_exchange(position, next, Relaxed, Relaxed)
                .is_ok()
            {
                return Some(position);
            }
        }
    }

    /// Returns whether tiptoe has read all records.
    pub fn is_read(&self) -> bool {
        self.slab.load(slab::HEAD) == self.slab.load(slab::TAIL)
    }

    fn head(&self) -> u64 {
        self.slab.load(slab::HEAD)
    }

    fn at(&self, position: u64) -> Option<Entry> {
        let at = cell_of(position);
        // Acquire: pairs with `push` (edge F).
        let word = self.cells.at(at + 1)?.load(Acquire);
        if word & !u64::from(u32::MAX) != mark(position) {
            return None;
        }
        let [first, third, fourth] = [0, 2, 3].map(|word| self.cells.load(at + word));
        Some(match word as u32 {
            none if none < FIRST_SLOT => Entry::Thread {
                tid: first as u32,
                comm: name(third, fourth),
            },
            slot => Entry::Call(Record {
                at: first,
                slot,
                args: [third, fourth],
            }),
        })
    }

    fn set_tail(&self, position: u64) {
        if let Some(word) = self.slab.at(slab::TAIL) {
            // Release: pairs with `reserve` (edge G).
            word.store(position, Release);
        }
    }
}

fn cell_of(position: u64) -> usize {
    position as usize % CELLS * CELL_WORDS
}

fn mark(position: u64) -> u64 {
    position.wrapping_add(1) << 32
}

pub(crate) fn name(first: u64, second: u64) -> [u8; 16] {
    let mut comm = [0; 16];
    comm[..8].copy_from_slice(&first.to_le_bytes());
    comm[8..].copy_from_slice(&second.to_le_bytes());
    comm
}

const BITS: usize = u64::BITS as usize;

/// A reader, which trusts only its own memory.
#[derive(Clone, Debug)]
pub struct Reader {
    tail: u64,
    /// How often the next cell was incomplete.
    waited: u32,
    given_up: [u64; CELLS.div_ceil(BITS)],
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            tail: 0,
            waited: 0,
            given_up: [0; CELLS.div_ceil(BITS)],
        }
    }
}

impl Reader {
    /// Passes new entries to `take` and frees their cells. Gives up a cell that is incomplete at more than `patience`
    /// readings. Returns the number of lost entries.
    pub fn read(&mut self, ring: &Ring, patience: u32, mut take: impl FnMut(Entry)) -> u64 {
        let (head, from) = (ring.head(), self.tail);
        if head.wrapping_sub(from) > CELLS as u64 {
            // Our writer is never more than a ring ahead, so this head is corrupt.
            return self.skip(ring, head);
        }
        let mut lost = 0;
        while self.tail != head {
            let entry = match self.is_given_up(self.tail) {
                true => None,
                false => ring.at(self.tail),
            };
            match entry {
                Some(entry) => take(entry),
                None if !self.gives_up(patience) => break,
                None => lost += 1,
            }
            self.waited = 0;
            self.tail = self.tail.wrapping_add(1);
        }
        if self.tail != from {
            ring.set_tail(self.tail);
        }
        lost
    }

    fn skip(&mut self, ring: &Ring, head: u64) -> u64 {
        let lost = head.wrapping_sub(self.tail);
        self.tail = head;
        ring.set_tail(head);
        lost
    }

    fn is_given_up(&self, position: u64) -> bool {
        let (word, bit) = bit_of(position);
        self.given_up.get(word).is_some_and(|word| word & bit != 0)
    }

    fn gives_up(&mut self, patience: u32) -> bool {
        if self.is_given_up(self.tail) {
            return true;
        }
        self.waited += 1;
        let over = self.waited > patience;
        let (word, bit) = bit_of(self.tail);
        if let Some(word) = self.given_up.get_mut(word).filter(|_| over) {
            *word |= bit;
        }
        over
    }
}

fn bit_of(position: u64) -> (usize, u64) {
    let cell = position as usize % CELLS;
    (cell / BITS, 1 << (cell % BITS))
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn call(number: u64) -> Record {
        Record {
            at: number,
            slot: 99,
            args: [number + 1, number + 2],
        }
    }

    fn read(reader: &mut Reader, ring: &Ring) -> (Vec<u64>, u64) {
        let mut calls = Vec::new();
        let lost = reader.read(ring, 1, |entry| match entry {
            Entry::Call(record) => {
                assert_eq!(record, call(record.at));
                calls.push(record.at);
            }
            Entry::Thread { tid, .. } => assert_eq!(tid, 7),
        });
        (calls, lost)
    }

    #[test]
    fn a_ring_wraps_around_and_refuses_records_without_room() {
        let (slab, cells) = (words(8), words(CELLS * CELL_WORDS));
        let ring = Ring::new(Words::new(&slab), Words::new(&cells)).unwrap();
        let mut reader = Reader::default();
        assert!(ring.announce(7, [1, 2]));
        for lap in 0..3 {
            let room = CELLS - usize::from(lap == 0);
            let numbers: Vec<u64> = (0..room as u64 + 5).collect();
            let taken = numbers.iter().filter(|n| ring.push(&call(**n))).count();
            assert_eq!(taken, room);
            assert_eq!(
                read(&mut reader, &ring),
                (numbers[..room].to_vec(), 0),
                "lap {lap}"
            );
        }
    }

    #[test]
    fn a_cell_that_is_never_written_is_given_up_for_good() {
        let (slab, cells) = (words(8), words(CELLS * CELL_WORDS));
        let ring = Ring::new(Words::new(&slab), Words::new(&cells)).unwrap();
        let mut reader = Reader::default();
        let hole = ring.reserve().unwrap();
        assert!(ring.push(&call(1)));
        assert_eq!(read(&mut reader, &ring), (Vec::new(), 0), "it waits first");
        assert_eq!(read(&mut reader, &ring), (std::vec![1], 1));
        for number in 2..CELLS as u64 {
            assert!(ring.push(&call(number)));
        }
        assert!(ring.push(&call(0)), "the hole has room again");
        let (calls, lost) = read(&mut reader, &ring);
        assert_eq!((calls.len(), lost), (CELLS - 2, 1), "{hole}");
    }

    #[test]
    fn an_impossible_head_is_read_in_bounded_time() {
        let (slab, cells) = (words(8), words(CELLS * CELL_WORDS));
        let ring = Ring::new(Words::new(&slab), Words::new(&cells)).unwrap();
        let mut reader = Reader::default();
        for head in [u64::MAX, 1 << 40, 0] {
            slab[slab::HEAD].store(head, Relaxed);
            assert!(reader.read(&ring, 1, |_| panic!("no record was written")) > 0);
        }
    }
}
