//! Maps address ranges to *places* (file and offset), by a radix tree.
//!
//! The tree is like a processor's page table of [`LEVELS`] levels. An entry covers a *span* of addresses: a page on
//! level 0, otherwise as much as a table of the level below.
//!
//! | entry | its span |
//! |---|---|
//! | 0 | has no file |
//! | a place, and [`FILE`] | has this place at its first address |
//! | a table's number, and [`TABLE`] | is described by that table |
//!
//! INVARIANT (1 and 2 are broken only while the sequence of [`crate::lookup`] is odd):
//!
//! 1. Exactly one entry names each table but the root, and each such table has an entry that is not 0.
//! 2. Level 0 names no table.
//! 3. A writer must hold the lock of [`crate::lookup`].
//!
//! A speculative reader may be in a freed table that now describes other addresses. This is no use after free, because
//! table numbers are bounded, levels are fixed, and tables are reused only as tables.

use core::ops::Range;

use tiptoe_sync::Pool;

use crate::primitive::{AtomicU64, Ordering::Relaxed};

mod edit;
mod file_offset;
#[cfg(all(test, not(tiptoe_loom)))]
mod tests;

pub use file_offset::{FileOffset, Mapping};

const PAGE_BITS: u32 = 12;
pub(crate) const PAGE: u64 = 1 << PAGE_BITS;
/// Log2 of a table's entries, for 47 address bits. Smaller in models and tests, so that tables are reused often.
const BITS: u32 = match (cfg!(tiptoe_loom), cfg!(test)) {
    (true, _) => 1,
    (_, true) => 2,
    _ => 7,
};
const LEVELS: u32 = if cfg!(tiptoe_loom) { 3 } else { 5 };
pub(crate) const WIDTH: usize = 1 << BITS;
/// Files' code is mapped only below this address.
pub(crate) const END: u64 = 1 << (PAGE_BITS + LEVELS * BITS);

/// Tag bits. They are 0 in a place at the start of a page.
const TABLE: u64 = 1;
const FILE: u64 = 2;

type MappingTable = [AtomicU64; WIDTH];

#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    const NOTHING: Entry = Entry(0);

    fn file(file_offset: FileOffset) -> Entry {
        Entry(file_offset.0 | FILE)
    }

    fn below(table: u64) -> Entry {
        Entry(table << 1 | TABLE)
    }

    #[inline]
    fn load(word: &AtomicU64) -> Entry {
        Entry(word.load(Relaxed)) // Relaxed: see `Mappings`
    }

    fn store(self, word: &AtomicU64) {
        word.store(self.0, Relaxed); // Relaxed: see `Mappings`
    }

    #[inline]
    fn table(self) -> Option<u64> {
        (self.0 & TABLE != 0).then_some(self.0 >> 1)
    }

    #[inline]
    fn file_offset(self) -> Option<FileOffset> {
        (self.0 != 0).then_some(FileOffset(self.0 & !FILE))
    }
}

struct Piece {
    range: Range<u64>,
    file_offset: Option<FileOffset>,
}

#[inline]
const fn span(level: u32) -> u64 {
    1 << (PAGE_BITS + level * BITS)
}

pub(crate) fn pages(range: &Range<u64>) -> Range<u64> {
    let end = range.end.min(END).next_multiple_of(PAGE);
    range.start.min(END) / PAGE * PAGE..end
}

#[derive(Debug)]
pub(crate) struct Mappings<'a> {
    root: &'a MappingTable,
    pool: Pool<'a, WIDTH>,
    free: AtomicU64,
}

pub(crate) const fn words_for(tables: usize) -> usize {
    tables * WIDTH
}

// Relaxed throughout: the lock orders writers (`tiptoe_sync`'s edge G), and the sequence count decides what a reader
// accepts (edges E, F).
impl<'a> Mappings<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Option<Self> {
        let (root, tables) = words.split_first_chunk()?;
        Some(Mappings {
            root,
            pool: Pool::new(tables),
            free: AtomicU64::new((tables.len() / WIDTH) as u64),
        })
    }

    #[inline]
    fn walk(&self, address: u64) -> (u32, Entry) {
        let mut table = (address < END).then_some(self.root);
        for level in (0..LEVELS).rev() {
            let slot = address / span(level) % WIDTH as u64;
            let Some(word) = table.and_then(|table| table.get(slot as usize)) else {
                break;
            };
            let entry = Entry::load(word);
            match entry.table() {
                Some(below) => table = self.pool.get(below),
                None => return (level, entry),
            }
        }
        (0, Entry::NOTHING)
    }

    #[inline]
    pub(crate) fn find_speculative(&self, address: u64) -> Option<FileOffset> {
        let (level, entry) = self.walk(address);
        Some(entry.file_offset()?.plus(address % span(level)))
    }

    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let (mut at, end) = (range.start, range.end.min(END));
        core::iter::from_fn(move || {
            let (level, entry) = (at < end).then(|| self.walk(at))?;
            let within = at % span(level);
            let piece = Piece {
                range: at..(at - within + span(level)).min(end),
                file_offset: entry
                    .file_offset()
                    .map(|file_offset| file_offset.plus(within)),
            };
            at = piece.range.end;
            Some(piece)
        })
    }

    pub(crate) fn meets(&self, range: &Range<u64>) -> bool {
        self.pieces(range.clone())
            .any(|piece| piece.file_offset.is_some())
    }

    pub(crate) fn holds(&self, mapping: &Mapping) -> bool {
        let range = mapping.start..mapping.end;
        let is_it =
            |piece: Piece| piece.file_offset == Some(mapping.file_offset_of(piece.range.start));
        range.end <= END && self.pieces(range).all(is_it)
    }

    /// Returns the mappings in a range, in order, cut to the range and merged. The caller must hold the lock.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Mapping> + '_ {
        let mapped = |Piece { range, file_offset }| {
            Some(Mapping {
                start: range.start,
                end: range.end,
                file_offset: file_offset?,
            })
        };
        let mut parts = self.pieces(range).filter_map(mapped).peekable();
        core::iter::from_fn(move || {
            let mut mapping = parts.next()?;
            while let Some(next) = parts.next_if(|next| mapping.continues_in(next)) {
                mapping.end = next.end;
            }
            Some(mapping)
        })
    }
}
