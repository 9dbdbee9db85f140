//! How the tree changes. All of this runs under the lock, and with the sequence
//! odd.

use core::ops::Range;

use super::{BLOCK, Block, JOIN, Mapping, Mappings, NONE, Place, Position};
use crate::primitive::Ordering::Relaxed;

/// How many mappings the largest single change adds: a move out of the middle of
/// one, into the middle of another, with a tail.
const GROWTH: u64 = 4;

/// Slots that mappings in order leave free: with none, each block would be halved at
/// its first change, and a search would go through one level more.
const SLACK: usize = BLOCK.div_ceil(8);

// Relaxed throughout, as in the rest of the tree.
impl Mappings<'_> {
    /// Whether a change that adds mappings is sure to fit.
    pub(crate) fn has_room(&self) -> bool {
        self.len.load(Relaxed) + GROWTH <= self.capacity
    }

    /// Whether taking a range out leaves one mapping in two parts.
    pub(crate) fn splits(&self, range: &Range<u64>) -> bool {
        let first = self.first_in(range);
        first.is_some_and(|(_, found)| found.start < range.start && range.end < found.end)
    }

    /// Whether something is mapped in a range.
    pub(crate) fn meets(&self, range: &Range<u64>) -> bool {
        self.first_in(range).is_some()
    }

    /// Whether this mapping, or one that it is a part of, is in the tree.
    pub(crate) fn holds(&self, mapping: &Mapping) -> bool {
        let found = self.find_speculative(mapping.start);
        found.is_some_and(|found| found.clip(&(mapping.start..mapping.end)) == *mapping)
    }

    /// Maps, in place of what was there.
    pub(crate) fn insert(&self, mut mapping: Mapping) {
        self.remove(mapping.start..mapping.end);
        let left = mapping.start.checked_sub(1);
        if let Some((at, left)) = left.and_then(|address| self.holder(address))
            && left.continues_in(&mapping)
        {
            self.delete(at);
            (mapping.start, mapping.place) = (left.start, left.place);
        }
        if let Some((at, right)) = self.holder(mapping.end)
            && mapping.continues_in(&right)
        {
            self.delete(at);
            mapping.end = right.end;
        }
        self.put(mapping);
    }

    /// Unmaps a range: whole mappings, ends of some, the middle of one.
    pub(crate) fn remove(&self, range: Range<u64>) {
        while let Some((at, found)) = self.first_in(&range) {
            let before = found.clip(&(found.start..range.start));
            let after = found.clip(&(range.end..found.end));
            match (before.start < before.end, after.start < after.end) {
                (false, false) => self.delete(at),
                (true, false) => self.replace(at, before),
                (false, true) => self.replace(at, after),
                (true, true) => {
                    self.replace(at, before);
                    self.put(after);
                }
            }
        }
    }

    /// What mremap does: the mappings in `from` go to `to`, which does not overlap
    /// it unless it starts there; what `to` is longer continues the last one.
    pub(crate) fn remap(&self, from: Range<u64>, to: Range<u64>) {
        let source = self.find_speculative(from.start); // of a copy, where `from` is empty
        let len = (from.end - from.start).min(to.end - to.start);
        self.remove(from.start + len..from.end);
        if from.start != to.start {
            self.remove(to.clone());
            self.relocate(from.start..from.start + len, to.start);
        }
        let tail = to.start + len..to.end;
        let place = match len {
            0 => source.map(|source| source.place_of(from.start)),
            _ => self.place_behind(tail.start - 1),
        };
        self.remove(tail.clone());
        let grown = place.map(|place| Mapping {
            start: tail.start,
            end: tail.end,
            place,
        });
        if let Some(grown) = grown.filter(|grown| !tail.is_empty() && grown.is_in_one_file()) {
            self.insert(grown);
        }
    }

    /// What would be at the next address.
    fn place_behind(&self, address: u64) -> Option<Place> {
        let found = self.find_speculative(address)?;
        Some(found.place_of(address + 1))
    }

    fn relocate(&self, from: Range<u64>, to: u64) {
        while let Some((_, found)) = self.first_in(&from) {
            let part = found.clip(&from);
            self.remove(part.start..part.end);
            self.insert(Mapping {
                start: part.start - from.start + to,
                end: part.end - from.start + to,
                ..part
            });
        }
    }

    fn holder(&self, address: u64) -> Option<(Position, Mapping)> {
        let at = self.locate(address)?;
        let found = self.get(at)?;
        (found.start <= address && address < found.end).then_some((at, found))
    }

    /// Puts a mapping where nothing is mapped.
    fn put(&self, mapping: Mapping) {
        let room = self.with_room(mapping.start);
        let Some((row, block)) = room else {
            debug_assert!(false, "rule 4 leaves a block");
            return;
        };
        let slot = match block.get(0) {
            Some(first) if first.start < mapping.start => block.search(mapping.start) + 1,
            _ => 0,
        };
        block.insert(slot, mapping);
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
        self.refresh(row, block);
    }

    /// The block for an address, with a free slot.
    fn with_room(&self, address: u64) -> Option<(usize, Block<'_>)> {
        let Some(row) = self.index.search(address) else {
            return Some((0, self.add_row(0)?));
        };
        let block = self.block(row)?;
        let last = block.get(BLOCK - 1)?.start;
        if last == NONE {
            return Some((row, block));
        }
        let upper = self.add_row(row + 1)?;
        // What comes in order fills its blocks but for some room for what comes later;
        // no row behind asks for rule 4.
        let ascending = last < address && row + 2 == self.index.len();
        let kept = if ascending { BLOCK - SLACK } else { BLOCK / 2 };
        upper.append(0, &block, kept);
        block.clear(kept);
        self.refresh(row + 1, upper);
        let behind = ascending || upper.get(0)?.start <= address;
        Some(if behind {
            (row + 1, upper)
        } else {
            (row, block)
        })
    }

    /// Changes a mapping in place; its order among the others stays.
    fn replace(&self, at: Position, mapping: Mapping) {
        if let Some(block) = self.block(at.row) {
            block.set(at.slot, mapping);
            self.refresh(at.row, block);
        }
    }

    fn delete(&self, at: Position) {
        let Some(block) = self.block(at.row) else {
            return;
        };
        self.len.store(self.len.load(Relaxed) - 1, Relaxed);
        if block.count() == 1 {
            return self.remove_row(at.row);
        }
        block.remove(at.slot);
        self.refresh(at.row, block);
        if !self.join(at.row) && at.row > 0 {
            self.join(at.row - 1);
        }
    }

    /// Makes a row's block and the next one's one, if that keeps it half empty.
    fn join(&self, row: usize) -> bool {
        if row + 1 >= self.index.len() {
            return false;
        }
        let (Some(block), Some(next)) = (self.block(row), self.block(row + 1)) else {
            return false;
        };
        let count = block.count();
        if count + next.count() > JOIN {
            return false;
        }
        block.append(count, &next, 0);
        self.remove_row(row + 1);
        true
    }

    /// A row's key is the first start in its block.
    fn refresh(&self, row: usize, block: Block) {
        if let Some(mapping) = block.get(0) {
            self.index.set(row, mapping.start);
        }
    }

    /// A new row with an empty block.
    fn add_row(&self, row: usize) -> Option<Block<'_>> {
        self.index.insert(row, self.pool.take()?)?;
        let block = self.block(row)?;
        block.clear(0);
        Some(block)
    }

    /// Takes a row out and gives its block back.
    fn remove_row(&self, row: usize) {
        if let Some(block) = self.index.block(row) {
            self.index.remove(row);
            self.pool.give(block);
        }
    }
}
