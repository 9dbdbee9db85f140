//! The rows above the blocks: for each block its first start and its number, in
//! order. Above the starts every eighth stands again, above those every
//! sixty-fourth, so that a search counts in one cache line a level.
//!
//! Rows move when one comes or goes: 4,000 rows in 3 us.

use crate::mapping::{GROUP, NONE};
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// With groups of eight, enough for two million rows.
const LEVELS: usize = match (cfg!(tiptoe_loom), cfg!(test)) {
    (true, _) => 3,
    (_, true) => 10,
    _ => 7,
};

/// Starts that lie in a cache line. Those behind the last are [`NONE`].
pub(super) type Group = [AtomicU64; GROUP];

/// The rows.
#[derive(Debug)]
pub(super) struct Index<'a> {
    /// Level 0 has the start of each row, and every other one of the first starts
    /// of the groups below it.
    levels: [&'a [Group]; LEVELS],
    /// Each row's block.
    blocks: &'a [AtomicU64],
    rows: AtomicU64,
    /// How many levels a search goes through: the uppermost one has one group.
    height: AtomicU64,
}

/// How many words an index of so many rows needs.
pub(super) const fn words_for(rows: usize) -> usize {
    let (mut words, mut level, mut keys) = (rows, 0, rows);
    while level < LEVELS {
        keys = keys.div_ceil(GROUP);
        words += keys * GROUP;
        level += 1;
    }
    words
}

/// The last key of a group that is not above an address, else the first. No branch
/// depends on the address, and no load on another: all keys are counted.
#[inline]
pub(super) fn last_in(group: &Group, address: u64) -> usize {
    let later = group.iter().skip(1);
    later
        .map(|key| usize::from(key.load(Relaxed) <= address))
        .sum()
}

// Relaxed throughout, as in the rest of the tree.
impl<'a> Index<'a> {
    /// No rows, but room for so many.
    pub(super) fn new(words: &'a [AtomicU64], rows: usize) -> Option<Self> {
        let (mut levels, mut keys): ([&[Group]; LEVELS], usize) = ([&[]; LEVELS], rows);
        let mut words = words;
        for level in &mut levels {
            keys = keys.div_ceil(GROUP);
            let (these, others) = words.split_at_checked(keys * GROUP)?;
            (*level, words) = (these.as_chunks().0, others);
        }
        Some(Index {
            levels,
            blocks: words.get(..rows)?,
            rows: AtomicU64::new(0),
            height: AtomicU64::new(0),
        })
    }

    /// How many rows there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rows.load(Relaxed) as usize
    }

    /// A row's block.
    #[inline]
    pub(super) fn block(&self, row: usize) -> Option<u64> {
        Some(self.blocks.get(row)?.load(Relaxed))
    }

    /// The last row whose start is not above an address, else the first.
    #[inline]
    pub(super) fn search(&self, address: u64) -> Option<usize> {
        let levels = self.levels.get(..self.height.load(Relaxed) as usize)?;
        levels.first()?; // there are no rows
        let mut group = 0;
        for level in levels.iter().rev() {
            group = group * GROUP + last_in(level.get(group)?, address);
        }
        Some(group)
    }

    /// A new row with this block; those from there on move up.
    pub(super) fn insert(&self, row: usize, block: u64) -> Option<()> {
        let rows = self.len();
        for at in (row..rows).rev() {
            self.blocks.get(at + 1)?.store(self.block(at)?, Relaxed);
        }
        self.blocks.get(row)?.store(block, Relaxed);
        let starts = self.levels.first()?.as_flattened();
        for at in (row..rows).rev() {
            starts
                .get(at + 1)?
                .store(starts.get(at)?.load(Relaxed), Relaxed);
        }
        self.resize(row, rows + 1)
    }

    /// Takes a row out; those behind it move down.
    pub(super) fn remove(&self, row: usize) -> Option<()> {
        let rows = self.len();
        let starts = self.levels.first()?.as_flattened();
        for at in row + 1..rows {
            self.blocks.get(at - 1)?.store(self.block(at)?, Relaxed);
            starts
                .get(at - 1)?
                .store(starts.get(at)?.load(Relaxed), Relaxed);
        }
        self.resize(row, rows - 1)
    }

    /// The start of a row has changed.
    pub(super) fn set(&self, row: usize, start: u64) {
        let mut at = row;
        for level in &self.levels {
            if let Some(key) = level.as_flattened().get(at) {
                key.store(start, Relaxed);
            }
            if !at.is_multiple_of(GROUP) {
                return;
            }
            at /= GROUP;
        }
    }

    /// There are so many rows, which differ from `row` on: ends the last group of
    /// each level with [`NONE`], and copies first starts up.
    fn resize(&self, row: usize, rows: usize) -> Option<()> {
        let height = match rows.checked_sub(1) {
            None => 0,
            Some(last) => last.checked_ilog(GROUP).map_or(1, |levels| levels + 1),
        };
        self.height.store(height.into(), Relaxed);
        self.rows.store(rows as u64, Relaxed);
        let (mut from, mut keys) = (row, rows);
        for (lower, upper) in self.levels.iter().zip(self.levels.iter().skip(1)) {
            let end = keys.next_multiple_of(GROUP).max(GROUP);
            let tail = lower.as_flattened().get(keys..end)?;
            tail.iter().for_each(|key| key.store(NONE, Relaxed));
            (from, keys) = (from / GROUP, keys.div_ceil(GROUP));
            for at in from..keys {
                let first = lower.get(at)?.first()?.load(Relaxed);
                upper.as_flattened().get(at)?.store(first, Relaxed);
            }
        }
        Some(())
    }

    #[cfg(test)]
    pub(super) fn start(&self, row: usize) -> u64 {
        self.levels[0].as_flattened()[row].load(Relaxed)
    }
}
