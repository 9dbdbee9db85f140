//! What of which file is mapped where: an ordered tree of two levels.
//!
//! The lower level is blocks of up to [`BLOCK`] mappings, the upper one row for
//! each block with the first address in it. Both are searched without a branch
//! on an address, so that a processor runs the search of the next address ahead.
//! Rows are moved when a block comes or goes, which is once in some sixteen
//! insertions: 4,000 rows, as of 100,000 mappings, in 3 us.
//!
//! | rule | holds |
//! |---|---|
//! | 1 | starts ascend, mappings do not overlap |
//! | 2 | a mapping that continues its neighbour in the file is one with it |
//! | 3 | no block is empty; its keys behind the last are [`NONE`] |
//! | 4 | two neighbouring blocks hold more than half a block together |
//! | 5 | whoever may write holds the lock of [`crate::lookup`]; the rules are broken only while its sequence is odd |
//!
//! A reader that speculates may find them broken. It is safe all the same: every
//! index that it reads is looked up with its bound, every loop is bounded, and
//! blocks are type-stable. By rule 4 a number of mappings bounds the blocks.

use core::ops::Range;

use tiptoe_sync::Pool;

use crate::primitive::{AtomicU64, Ordering::Relaxed};

mod block;
mod edit;
#[cfg(all(test, not(tiptoe_loom)))]
mod tests;

use block::Block;

/// Mappings in a block. Models and unit tests split and join at a few.
pub(crate) const BLOCK: usize = match (cfg!(tiptoe_loom), cfg!(test)) {
    (true, _) => 2,
    (_, true) => 4,
    _ => 32,
};
/// Words in a block: keys, then the rest of each mapping.
pub(crate) const BLOCK_WORDS: usize = 4 * BLOCK;
/// Neighbours that hold no more than this together become one block.
const JOIN: usize = BLOCK / 2;
/// The key of a slot without a mapping.
const NONE: u64 = u64::MAX;

/// A part of a file in memory. Two are neighbours where one ends and the other
/// starts; a file is whatever number the caller gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Which file.
    pub file: u64,
    /// Where in the file `start` is.
    pub offset: u64,
}

impl Mapping {
    /// Where in the file an address is.
    #[inline]
    pub fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.start))
    }

    /// What of it lies in `range`, which it meets.
    fn clip(&self, range: &Range<u64>) -> Mapping {
        let start = self.start.max(range.start);
        Mapping {
            start,
            end: self.end.min(range.end),
            file: self.file,
            offset: self.offset_of(start),
        }
    }

    /// Does the other one start where this one ends, here and in the file?
    fn continues_in(&self, next: &Mapping) -> bool {
        let here = (self.end, self.file, self.offset_of(self.end));
        here == (next.start, next.file, next.offset)
    }
}

/// Where a mapping stands.
#[derive(Clone, Copy, Debug)]
struct Position {
    row: usize,
    slot: usize,
}

/// The tree.
#[derive(Debug)]
pub(crate) struct Mappings<'a> {
    /// The first start in each row's block.
    firsts: &'a [AtomicU64],
    /// Each row's block.
    blocks: &'a [AtomicU64],
    pool: Pool<'a>,
    rows: AtomicU64,
    len: AtomicU64,
    capacity: u64,
}

/// How many blocks so many mappings take at most, by rule 4.
pub(crate) const fn blocks_for(mappings: usize) -> usize {
    2 * mappings / (JOIN + 1) + 2
}

// Relaxed throughout: writers are ordered by their lock (edge G), and what a
// reader accepts is ordered by the sequence count (edges E and F).
impl<'a> Mappings<'a> {
    /// An empty tree. `rows` are twice as many words as there are blocks.
    pub(crate) fn new(rows: &'a [AtomicU64], blocks: &'a [AtomicU64], capacity: usize) -> Self {
        let (firsts, numbers) = rows.split_at(rows.len() / 2);
        Mappings {
            firsts,
            blocks: numbers,
            pool: Pool::new(blocks, BLOCK_WORDS),
            rows: AtomicU64::new(0),
            len: AtomicU64::new(0),
            capacity: capacity as u64,
        }
    }

    /// The mapping that holds an address: to be thrown away unless the sequence
    /// or the lock says that nothing changed.
    #[inline]
    pub(crate) fn find_speculative(&self, address: u64) -> Option<Mapping> {
        let mapping = self.get(self.locate(address)?)?;
        (mapping.start <= address && address < mapping.end).then_some(mapping)
    }

    /// The last mapping that starts at or before an address, else the first.
    #[inline]
    fn locate(&self, address: u64) -> Option<Position> {
        let firsts = self.firsts.get(..self.rows())?;
        firsts.first()?; // of no rows, 0 would be one
        let row = search(firsts, address);
        let slot = search(self.block(row)?.keys(), address);
        Some(Position { row, slot })
    }

    #[inline]
    fn rows(&self) -> usize {
        (self.rows.load(Relaxed) as usize).min(self.firsts.len())
    }

    #[inline]
    fn block(&self, row: usize) -> Option<Block<'a>> {
        let words = self.pool.get(self.blocks.get(row)?.load(Relaxed))?;
        Block::new(words)
    }

    #[inline]
    fn get(&self, at: Position) -> Option<Mapping> {
        self.block(at.row)?.get(at.slot)
    }

    /// The first mapping that ends behind an address.
    fn first_behind(&self, address: u64) -> Option<(Position, Mapping)> {
        let at = self.locate(address)?;
        let mapping = self.get(at)?;
        if mapping.end > address {
            return Some((at, mapping));
        }
        let at = self.next(at)?;
        Some((at, self.get(at)?))
    }

    fn next(&self, at: Position) -> Option<Position> {
        let here = Position {
            slot: at.slot + 1,
            ..at
        };
        if here.slot < self.block(at.row)?.count() {
            return Some(here);
        }
        let row = at.row + 1;
        (row < self.rows()).then_some(Position { row, slot: 0 })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// All of them, in order. Only whoever holds the lock may call this.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Mapping> + '_ {
        let first = (self.rows() > 0).then_some(Position { row: 0, slot: 0 });
        core::iter::successors(first, |at| self.next(*at)).filter_map(|at| self.get(at))
    }
}

/// The last position whose key is not above an address, else 0. No branch
/// depends on the address.
#[inline]
fn search(keys: &[AtomicU64], address: u64) -> usize {
    let (mut base, mut len) = (0, keys.len());
    while len > 1 {
        let half = len / 2;
        let key = keys.get(base + half).map_or(NONE, |key| key.load(Relaxed));
        base = core::hint::select_unpredictable(key <= address, base + half, base);
        len -= half;
    }
    base
}
