//! What of which file is mapped where: an ordered tree.
//!
//! Its leaves are blocks of up to [`BLOCK`] mappings; above them stands an
//! [`index`] of the blocks, in arrays. Both are searched by counting in cache
//! lines, without a branch on an address, so that a processor runs ahead into the
//! next search. A change moves part of a block, and once in some sixteen
//! insertions rows of the index.
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
mod index;
mod place;
#[cfg(all(test, not(tiptoe_loom)))]
mod tests;

use block::Block;
use index::Index;
pub use place::{Mapping, Place};

/// Mappings in a block, and keys in a cache line. Models and unit tests split and
/// join at a few.
pub(crate) const BLOCK: usize = if cfg!(any(test, tiptoe_loom)) { 4 } else { 32 };
const GROUP: usize = if cfg!(any(test, tiptoe_loom)) { 2 } else { 8 };
/// Words in a block: keys, then the rest of each mapping.
pub(crate) const BLOCK_WORDS: usize = 3 * BLOCK;
/// Neighbours that hold no more than this together become one block.
const JOIN: usize = BLOCK / 2;
/// The key of a slot without a mapping.
const NONE: u64 = u64::MAX;

/// Where a mapping stands.
#[derive(Clone, Copy, Debug)]
struct Position {
    row: usize,
    slot: usize,
}

/// The tree.
#[derive(Debug)]
pub(crate) struct Mappings<'a> {
    index: Index<'a>,
    pool: Pool<'a, BLOCK_WORDS>,
    len: AtomicU64,
    capacity: u64,
}

/// How many blocks so many mappings take at most, by rule 4.
const fn blocks_for(mappings: usize) -> usize {
    2 * mappings / (JOIN + 1) + 2
}

/// How many words a tree of so many mappings needs.
pub(crate) const fn words_for(mappings: usize) -> usize {
    let blocks = blocks_for(mappings);
    blocks * BLOCK_WORDS + index::words_for(blocks)
}

// Relaxed throughout: writers are ordered by their lock (edge G), and what a
// reader accepts is ordered by the sequence count (edges E and F).
impl<'a> Mappings<'a> {
    /// An empty tree over zeroed words, as many as [`words_for`] says.
    pub(crate) fn new(words: &'a [AtomicU64], capacity: usize) -> Option<Self> {
        let blocks = blocks_for(capacity);
        let (bodies, rows) = words.split_at_checked(blocks * BLOCK_WORDS)?;
        Some(Mappings {
            index: Index::new(rows, blocks)?,
            pool: Pool::new(bodies),
            len: AtomicU64::new(0),
            capacity: capacity as u64,
        })
    }

    /// The mapping that holds an address: to be thrown away unless the sequence
    /// or the lock says that nothing changed.
    #[inline]
    pub(crate) fn find_speculative(&self, address: u64) -> Option<Mapping> {
        let (_, block) = self.locate_block(address)?;
        let mapping = block.get(block.search(address))?;
        (mapping.start <= address && address < mapping.end).then_some(mapping)
    }

    /// The last mapping that starts at or before an address, else the first.
    #[inline]
    fn locate(&self, address: u64) -> Option<Position> {
        let (row, block) = self.locate_block(address)?;
        let slot = block.search(address);
        Some(Position { row, slot })
    }

    #[inline]
    fn locate_block(&self, address: u64) -> Option<(usize, Block<'a>)> {
        let row = self.index.search(address)?;
        Some((row, self.block(row)?))
    }

    #[inline]
    fn block(&self, row: usize) -> Option<Block<'a>> {
        let words = self.pool.get(self.index.block(row)?)?;
        Some(Block::new(words))
    }

    #[inline]
    fn get(&self, at: Position) -> Option<Mapping> {
        self.block(at.row)?.get(at.slot)
    }

    /// The first mapping of which something is in a range: of an empty one there
    /// is none.
    fn first_in(&self, range: &Range<u64>) -> Option<(Position, Mapping)> {
        let mut at = self.locate(range.start)?;
        let mut mapping = self.get(at)?;
        if mapping.end <= range.start {
            at = self.next(at)?;
            mapping = self.get(at)?;
        }
        let met = mapping.start.max(range.start) < mapping.end.min(range.end);
        met.then_some((at, mapping))
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
        (row < self.index.len()).then_some(Position { row, slot: 0 })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Relaxed) as usize
    }

    /// All of them, in order. Only whoever holds the lock may call this.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Mapping> + '_ {
        let first = (self.index.len() > 0).then_some(Position { row: 0, slot: 0 });
        core::iter::successors(first, |at| self.next(*at)).filter_map(|at| self.get(at))
    }
}
