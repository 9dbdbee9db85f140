//! The content of a file, read piece by piece into tiptoe's memory.
//!
//! A mapped file may change while it is parsed: truncation raises SIGBUS, and a write makes every `&[u8]` over the
//! file undefined behaviour. So a piece that is borrowed is read once and kept until the [`Content`] is dropped. The
//! kept pieces share a budget, because the sizes that a file claims must not decide how much is kept.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use object::read::{ReadCache, ReadCacheOps, ReadRef};

const MOST_KEPT: u64 = 384 << 20;

/// The source of a file's bytes.
pub trait Pieces {
    /// Returns the file's length, which may change.
    fn size(&self) -> u64;

    /// Fills `piece` from `at` on; fails if the file is too short.
    fn read(&self, at: u64, piece: &mut [u8]) -> Option<()>;

    /// Returns whether there is memory for this many more bytes.
    fn has_room(&self, _bytes: u64) -> bool {
        true
    }
}

impl Pieces for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, at: u64, piece: &mut [u8]) -> Option<()> {
        let start = usize::try_from(at).ok()?;
        piece.copy_from_slice(self.get(start..start.checked_add(piece.len())?)?);
        Some(())
    }
}

/// The content of a file.
pub struct Content {
    file: Rc<BudgetedPieces>,
    cache: ReadCache<ContentCursor>,
    /// Pieces already charged to the budget. Reading them again is free.
    paid: RefCell<HashSet<(u64, u64)>>,
}

impl Content {
    /// Returns the content of `pieces`.
    pub fn new(pieces: impl Pieces + 'static) -> Content {
        let file = Rc::new(BudgetedPieces {
            pieces: Box::new(pieces),
            left: Cell::new(MOST_KEPT),
            exceeded: Cell::new(false),
        });
        let cursor = ContentCursor {
            file: Rc::clone(&file),
            at: 0,
        };
        Content {
            file,
            cache: ReadCache::new(cursor),
            paid: RefCell::default(),
        }
    }

    /// Returns whether a limit or the budget prevented a read.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.file.exceeded.get()
    }

    /// Returns a range's bytes, if the file has all of them.
    pub fn get(&self, range: Range<u64>) -> Option<&[u8]> {
        let size = range.end.checked_sub(range.start)?;
        self.read_bytes_at(range.start, size).ok()
    }

    pub(crate) fn fill(&self, at: u64, piece: &mut [u8]) -> Option<()> {
        self.file.pieces.read(at, piece)
    }

    pub(crate) fn leave_out(&self) {
        self.file.exceeded.set(true);
    }

    pub(crate) fn size(&self) -> u64 {
        self.file.pieces.size()
    }

    /// Charges data made from the content to the budget.
    pub(crate) fn spend(&self, bytes: u64) -> Option<()> {
        self.file.spend(bytes)
    }

    /// Passes all bytes to `show` in bounded parts, which are not kept. Returns `None` if the bytes are unreadable,
    /// or more than `most`.
    pub(crate) fn stream(&self, most: u64, mut show: impl FnMut(&[u8])) -> Option<()> {
        const PART: usize = 1 << 16;
        let size = self.size();
        if size > most {
            self.leave_out();
            return None;
        }
        let mut part = vec![0; PART];
        let mut at = 0;
        while at < size {
            let part = &mut part[..usize::try_from(size - at).map_or(PART, |left| left.min(PART))];
            self.file.pieces.read(at, part)?;
            show(part);
            at += part.len() as u64;
        }
        Some(())
    }
}

impl Default for Content {
    fn default() -> Content {
        Content::new(Vec::new())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Content {
        Content::new(bytes)
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").finish_non_exhaustive()
    }
}

impl<'d> ReadRef<'d> for &'d Content {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        // The budget is charged first, because the cache allocates before it reads.
        if !self.paid.borrow().contains(&(offset, size)) {
            self.file.spend(size).ok_or(())?;
            self.paid.borrow_mut().insert((offset, size));
        }
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

struct BudgetedPieces {
    pieces: Box<dyn Pieces>,
    left: Cell<u64>,
    exceeded: Cell<bool>,
}

impl BudgetedPieces {
    fn spend(&self, bytes: u64) -> Option<()> {
        let left = self.left.get().checked_sub(bytes);
        let left = left.filter(|_| self.pieces.has_room(bytes));
        match left {
            Some(left) => self.left.set(left),
            None => self.exceeded.set(true),
        }
        left.map(drop)
    }
}

struct ContentCursor {
    file: Rc<BudgetedPieces>,
    at: u64,
}

impl ReadCacheOps for ContentCursor {
    fn len(&mut self) -> Result<u64, ()> {
        Ok(self.file.pieces.size())
    }

    fn seek(&mut self, at: u64) -> Result<u64, ()> {
        self.at = at;
        Ok(at)
    }

    fn read(&mut self, part: &mut [u8]) -> Result<usize, ()> {
        let left = self.file.pieces.size().saturating_sub(self.at);
        let size = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.file.spend(size as u64).ok_or(())?;
        self.read_exact(&mut part[..size])?;
        Ok(size)
    }

    fn read_exact(&mut self, piece: &mut [u8]) -> Result<(), ()> {
        self.file.pieces.read(self.at, piece).ok_or(())?;
        self.at += piece.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Zeros(u64);

    impl Pieces for Zeros {
        fn size(&self) -> u64 {
            self.0
        }

        fn read(&self, _: u64, piece: &mut [u8]) -> Option<()> {
            piece.fill(0);
            Some(())
        }
    }

    struct Truncated;

    impl Pieces for Truncated {
        fn size(&self) -> u64 {
            1 << 20
        }

        fn read(&self, _: u64, _: &mut [u8]) -> Option<()> {
            None
        }
    }

    #[test]
    fn a_file_that_is_truncated_while_it_is_read_has_no_bytes() {
        let content = Content::new(Truncated);
        assert_eq!(content.get(0..16), None);
        assert_eq!((&content).read_bytes_at_until(0..16, 0), Err(()));
        assert_eq!(content.stream(u64::MAX, |_| ()), None);
        assert!(!content.is_exceeded());
    }

    #[test]
    fn kept_pieces_have_a_budget() {
        let content = Content::new(Zeros(3 << 40));
        assert!(content.get(0..1 << 40).is_none());
        assert!(content.is_exceeded());
        let content = Content::new(Zeros(3 << 40));
        let piece = MOST_KEPT / 4;
        let pieces = (0..8).map(|at| content.get(at..at + piece).is_some());
        assert_eq!(pieces.filter(|read| *read).count(), 4);
        assert!(content.get(0..piece).is_some());
        assert!(content.get(0..1).is_none());
    }

    #[test]
    fn a_check_sum_reads_no_more_than_its_limit() {
        let mut seen = 0;
        let mut count = |part: &[u8]| seen += part.len() as u64;
        assert_eq!(
            Content::new(Zeros(3 << 40)).stream(1 << 31, &mut count),
            None
        );
        let few = Content::new(Zeros(200_000)).stream(1 << 31, &mut count);
        assert_eq!((few, seen), (Some(()), 200_000));
    }
}
