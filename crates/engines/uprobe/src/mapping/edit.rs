//! How the page table changes. All of this runs under the lock, and with the sequence
//! odd.

use core::ops::Range;

use super::{Entry, LEVELS, Mapping, Mappings, Place, Table, span};
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// What is to be in a range.
struct Fill {
    range: Range<u64>,
    /// What is at its first address.
    place: Option<Place>,
}

impl Fill {
    fn at(&self, address: u64) -> Entry {
        let place = self
            .place
            .map(|place| place.plus(address - self.range.start));
        place.map_or(Entry::NOTHING, Entry::file)
    }
}

// Relaxed throughout, as in the rest of the page table.
impl Mappings<'_> {
    /// Whether a range can be [filled](Self::fill), with a file or with nothing.
    pub(crate) fn has_room(&self, range: &Range<u64>, file: bool) -> bool {
        self.tables_for(range, file) <= self.free.load(Relaxed)
    }

    /// How many tables that takes: on each level one for each span that an edge divides,
    /// and for which one entry has spoken.
    pub(super) fn tables_for(&self, range: &Range<u64>, file: bool) -> u64 {
        let divided = |edge: u64, on: u32| {
            let (level, entry) = self.walk(edge);
            let new = on <= level && (file || entry.place().is_some());
            (new && !edge.is_multiple_of(span(on))).then_some(edge / span(on))
        };
        let on = |level| match (divided(range.start, level), divided(range.end, level)) {
            (None, None) => 0,
            (Some(one), Some(other)) if one != other => 2,
            _ => 1,
        };
        (1..LEVELS).map(on).sum()
    }

    /// Whether [`Self::remap`] has room, however the tables are now: on each level there
    /// are two edges for each range that it fills, or fewer spans.
    pub(crate) fn can_move(&self, from: &Range<u64>, to: &Range<u64>) -> bool {
        let most = |range: &Range<u64>, fills: u64| -> u64 {
            let spans = |level| (range.end - range.start) / span(level) + 2;
            (1..LEVELS).map(|level| spans(level).min(2 * fills)).sum()
        };
        let moved = self.within(from.clone()).count() as u64;
        most(from, 2) + most(to, moved + 2) <= self.free.load(Relaxed)
    }

    /// Puts a file, from a place on, or nothing into a range of whole pages, instead of
    /// what was there.
    pub(crate) fn fill(&self, range: Range<u64>, place: Option<Place>) {
        if range.start < range.end {
            self.fill_table(self.root, LEVELS - 1, 0, &Fill { range, place });
        }
    }

    /// The part of it for which a table speaks: its level, and its first address.
    fn fill_table(&self, table: &Table, level: u32, first: u64, fill: &Fill) {
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

    /// The same, of an entry of which only a part is in the range.
    fn fill_part(&self, word: &AtomicU64, level: u32, first: u64, fill: &Fill) {
        if Entry::load(word).0 == 0 && fill.place.is_none() {
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

    /// The table below an entry, which gets one where it has none, and its level.
    fn below(&self, word: &AtomicU64, level: u32) -> Option<(&Table, u32)> {
        let level = level.checked_sub(1)?;
        let entry = Entry::load(word);
        if let Some(number) = entry.table() {
            return Some((self.pool.get(number)?, level));
        }
        let number = self.pool.take()?;
        let table = self.pool.get(number)?;
        self.free.store(self.free.load(Relaxed) - 1, Relaxed);
        for (word, at) in table.iter().zip((0..).step_by(span(level) as usize)) {
            let place = entry.place().map(|place| place.plus(at));
            place.map_or(Entry::NOTHING, Entry::file).store(word);
        }
        Entry::below(number).store(word);
        Some((table, level))
    }

    /// Changes an entry, and gives back all tables below.
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

    /// What mremap does: the mappings in `from` go to `to`, which does not overlap
    /// it unless it starts there; what `to` is longer continues the last one.
    pub(crate) fn remap(&self, from: Range<u64>, to: Range<u64>) {
        let len = (from.end - from.start).min(to.end - to.start);
        let behind = match len {
            0 => self.find_speculative(from.start), // of a copy
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
                self.fill(at(part.start)..at(part.end), Some(part.place));
            }
            self.fill(moved, None);
        }
        let tail = |place| Mapping {
            start: to.start + len,
            end: to.end,
            place,
        };
        let grown = behind.filter(|place| tail(*place).is_in_one_file());
        self.fill(to.start + len..to.end, grown);
    }
}
