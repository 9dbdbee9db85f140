//! Changes to the tree. They need the lock, and an odd sequence ([`crate::lookup`]).

use core::ops::Range;

use super::{Entry, FileOffset, LEVELS, Mapping, MappingTable, Mappings, span};
use crate::primitive::{AtomicU64, Ordering::Relaxed};

struct Fill {
    range: Range<u64>,
    file_offset: Option<FileOffset>,
}

impl Fill {
    fn at(&self, address: u64) -> Entry {
        let file_offset = self
            .file_offset
            .map(|file_offset| file_offset.plus(address - self.range.start));
        file_offset.map_or(Entry::NOTHING, Entry::file)
    }
}

// Relaxed throughout, as in `Mappings`.
impl Mappings<'_> {
    pub(crate) fn has_room(&self, range: &Range<u64>, file: bool) -> bool {
        self.tables_for(range, file) <= self.free.load(Relaxed)
    }

    /// Returns how many tables a fill adds: one for each span (an entry's addresses) without a table that an edge of
    /// `range` divides.
    pub(super) fn tables_for(&self, range: &Range<u64>, file: bool) -> u64 {
        let divided = |edge: u64, on: u32| {
            let (level, entry) = self.walk(edge);
            let new = on <= level && (file || entry.file_offset().is_some());
            (new && !edge.is_multiple_of(span(on))).then_some(edge / span(on))
        };
        let on = |level| match (divided(range.start, level), divided(range.end, level)) {
            (None, None) => 0,
            (Some(one), Some(other)) if one != other => 2,
            _ => 1,
        };
        (1..LEVELS).map(on).sum()
    }

    /// Returns whether [`Self::remap`] certainly has room. On each level a fill adds at most two tables, one at each
    /// edge; all fills together add at most one for each span.
    pub(crate) fn can_move(&self, from: &Range<u64>, to: &Range<u64>) -> bool {
        let most = |range: &Range<u64>, fills: u64| -> u64 {
            let spans = |level| (range.end - range.start) / span(level) + 2;
            (1..LEVELS).map(|level| spans(level).min(2 * fills)).sum()
        };
        let moved = self.within(from.clone()).count() as u64;
        most(from, 2) + most(to, moved + 2) <= self.free.load(Relaxed)
    }

    pub(crate) fn fill(&self, range: Range<u64>, file_offset: Option<FileOffset>) {
        if range.start < range.end {
            self.fill_table(self.root, LEVELS - 1, 0, &Fill { range, file_offset });
        }
    }

    fn fill_table(&self, table: &MappingTable, level: u32, first: u64, fill: &Fill) {
        let Range { start, end } = fill.range;
        let from = start.saturating_sub(first) / span(level);
        for (slot, word) in table.iter().enumerate().skip(from as usize) {
            let at = first + slot as u64 * span(level);
            if end <= at {
                break;
            }
            if start <= at && at + span(level) <= end {
                self.set(word, fill.at(at));
            } else {
                self.fill_part(word, level, at, fill);
            }
        }
    }

    fn fill_part(&self, word: &AtomicU64, level: u32, first: u64, fill: &Fill) {
        if Entry::load(word).0 == 0 && fill.file_offset.is_none() {
            return;
        }
        let Some((below, level)) = self.below(word, level) else {
            debug_assert!(false, "there was room, for whole pages");
            return;
        };
        self.fill_table(below, level, first, fill);
        if below.iter().all(|word| Entry::load(word).0 == 0) {
            self.set(word, Entry::NOTHING);
        }
    }

    fn below(&self, word: &AtomicU64, level: u32) -> Option<(&MappingTable, u32)> {
        let level = level.checked_sub(1)?;
        let entry = Entry::load(word);
        if let Some(number) = entry.table() {
            return Some((self.pool.get(number)?, level));
        }
        let number = self.pool.take()?;
        let table = self.pool.get(number)?;
        self.free.store(self.free.load(Relaxed) - 1, Relaxed);
        for (word, at) in table.iter().zip((0..).step_by(span(level) as usize)) {
            let file_offset = entry.file_offset().map(|file_offset| file_offset.plus(at));
            file_offset.map_or(Entry::NOTHING, Entry::file).store(word);
        }
        Entry::below(number).store(word);
        Some((table, level))
    }

    fn set(&self, word: &AtomicU64, entry: Entry) {
        let before = Entry::load(word);
        entry.store(word);
        if let Some(number) = before.table() {
            let words = self.pool.get(number).into_iter().flatten();
            words.for_each(|word| self.set(word, Entry::NOTHING));
            self.pool.give(number);
            self.free.store(self.free.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Does what mremap does. `to` must start where `from` does, or not overlap `from`. If `to` is longer, the last
    /// mapping grows.
    pub(crate) fn remap(&self, from: Range<u64>, to: Range<u64>) {
        let len = (from.end - from.start).min(to.end - to.start);
        let next = match len {
            0 => self.find_speculative(from.start), // a copy
            _ => self
                .find_speculative(from.start + len - 1)
                .map(|last| last.plus(1)),
        };
        self.fill(from.start + len..from.end, None);
        if from.start != to.start {
            let moved = from.start..from.start + len;
            self.fill(to.start..to.start + len, None);
            for part in self.within(moved.clone()) {
                let at = |address| address - from.start + to.start;
                self.fill(at(part.start)..at(part.end), Some(part.file_offset));
            }
            self.fill(moved, None);
        }
        let tail = |file_offset| Mapping {
            start: to.start + len,
            end: to.end,
            file_offset,
        };
        let grown = next.filter(|file_offset| tail(*file_offset).is_in_one_file());
        self.fill(to.start + len..to.end, grown);
    }
}
