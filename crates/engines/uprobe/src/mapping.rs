//! What of which file is mapped where: a page table.
//!
//! [`LEVELS`] levels of tables, like the one that a processor walks, but with places
//! in files instead of in memory. An entry speaks for a *span* of addresses: a page on
//! level 0, and on each level above for all that a table below has.
//!
//! | entry | its span |
//! |---|---|
//! | 0 | has nothing of a file |
//! | a place, and [`FILE`] | has one file: this place is at its first address, and so on |
//! | a table's number, and [`TABLE`] | is of several kinds: that table says |
//!
//! | rule | holds |
//! |---|---|
//! | 1 | each table but the root has one entry that names it, and is not all 0 |
//! | 2 | level 0 names no table |
//! | 3 | whoever may write holds the lock of [`crate::lookup`]; the rules are broken only while its sequence is odd |
//!
//! A search is a load a level and compares nothing. A change writes two tables on each
//! level at most, those at the edges of its range, however long that is.
//!
//! A reader that speculates may walk through a table that was given back, and is now
//! of other addresses. It is safe all the same: a table's number is looked up with its
//! bound, there are so many levels and no more, and tables are type-stable.

use core::ops::Range;

use tiptoe_sync::Pool;

use crate::primitive::{AtomicU64, Ordering::Relaxed};

mod edit;
mod place;
#[cfg(all(test, not(tiptoe_loom)))]
mod tests;

pub use place::{Mapping, Place};

/// Bytes in a page, as a power of two: mappings are whole pages.
const PAGE_BITS: u32 = 12;
pub(crate) const PAGE: u64 = 1 << PAGE_BITS;
/// Entries in a table, as a power of two, and levels: all 47 bits of a program's
/// addresses. Models and unit tests have enough in a few.
const BITS: u32 = match (cfg!(tiptoe_loom), cfg!(test)) {
    (true, _) => 1,
    (_, true) => 2,
    _ => 7,
};
const LEVELS: u32 = if cfg!(tiptoe_loom) { 3 } else { 5 };
/// Words in a table.
pub(crate) const WIDTH: usize = 1 << BITS;
/// No address from here on is of a file's code.
pub(crate) const END: u64 = 1 << (PAGE_BITS + LEVELS * BITS);

/// Marks of an entry, in the bits that a page's place has clear.
const TABLE: u64 = 1;
const FILE: u64 = 2;

type Table = [AtomicU64; WIDTH];

/// A word of a table, as above.
#[derive(Clone, Copy)]
struct Entry(u64);

impl Entry {
    const NOTHING: Entry = Entry(0);

    fn file(place: Place) -> Entry {
        Entry(place.0 | FILE)
    }

    fn below(table: u64) -> Entry {
        Entry(table << 1 | TABLE)
    }

    #[inline]
    fn load(word: &AtomicU64) -> Entry {
        Entry(word.load(Relaxed)) // as all of the page table
    }

    fn store(self, word: &AtomicU64) {
        word.store(self.0, Relaxed); // as all of the page table
    }

    #[inline]
    fn table(self) -> Option<u64> {
        (self.0 & TABLE != 0).then_some(self.0 >> 1)
    }

    /// Of one that names no table.
    #[inline]
    fn place(self) -> Option<Place> {
        (self.0 != 0).then_some(Place(self.0 & !FILE))
    }
}

/// What a whole span, or a part of one, has.
struct Piece {
    range: Range<u64>,
    place: Option<Place>,
}

/// How many bytes an entry's span has on a level.
#[inline]
const fn span(level: u32) -> u64 {
    1 << (PAGE_BITS + level * BITS)
}

/// The whole pages that a range has something of, below [`END`].
pub(crate) fn pages(range: &Range<u64>) -> Range<u64> {
    let end = range.end.min(END).next_multiple_of(PAGE);
    range.start.min(END) / PAGE * PAGE..end
}

/// The page table.
#[derive(Debug)]
pub(crate) struct Mappings<'a> {
    root: &'a Table,
    pool: Pool<'a, WIDTH>,
    /// How many tables are free.
    free: AtomicU64,
}

/// How many words so many tables need.
pub(crate) const fn words_for(tables: usize) -> usize {
    tables * WIDTH
}

// Relaxed throughout: writers are ordered by their lock (edge G), and what a
// reader accepts is ordered by the sequence count (edges E and F).
impl<'a> Mappings<'a> {
    /// An empty one over zeroed words, as many as [`words_for`] says; the root is one
    /// of its tables.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Option<Self> {
        let (root, tables) = words.split_first_chunk()?;
        Some(Mappings {
            root,
            pool: Pool::new(tables),
            free: AtomicU64::new((tables.len() / WIDTH) as u64),
        })
    }

    /// The level of the entry that speaks for an address, and that entry, which names
    /// no table: to be thrown away unless the sequence or the lock says that nothing
    /// changed.
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

    /// What is at an address: speculative as [`Self::walk`].
    #[inline]
    pub(crate) fn find_speculative(&self, address: u64) -> Option<Place> {
        let (level, entry) = self.walk(address);
        Some(entry.place()?.plus(address % span(level)))
    }

    /// What is where in a range, span by span, up to [`END`].
    fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = Piece> + '_ {
        let (mut at, end) = (range.start, range.end.min(END));
        core::iter::from_fn(move || {
            let (level, entry) = (at < end).then(|| self.walk(at))?;
            let within = at % span(level);
            let piece = Piece {
                range: at..(at - within + span(level)).min(end),
                place: entry.place().map(|place| place.plus(within)),
            };
            at = piece.range.end;
            Some(piece)
        })
    }

    /// Whether something is mapped in a range.
    pub(crate) fn meets(&self, range: &Range<u64>) -> bool {
        self.pieces(range.clone())
            .any(|piece| piece.place.is_some())
    }

    /// Whether this mapping, or one that it is a part of, is there.
    pub(crate) fn holds(&self, mapping: &Mapping) -> bool {
        let range = mapping.start..mapping.end;
        let is_it = |piece: Piece| piece.place == Some(mapping.place_of(piece.range.start));
        range.end <= END && self.pieces(range).all(is_it)
    }

    /// All mappings of which something is in a range, in order, as far as they are in
    /// it; those that continue each other are one. Only whoever holds the lock may call
    /// this.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Mapping> + '_ {
        let mapped = |Piece { range, place }| {
            Some(Mapping {
                start: range.start,
                end: range.end,
                place: place?,
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
