//! Up to [`BLOCK`] mappings in order: their starts side by side, so that a search
//! touches few cache lines, then two words for the rest of each.

use super::index::{Group, last_in};
use super::{BLOCK, BLOCK_WORDS, GROUP, Mapping, NONE, Place};
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// A view of a block's words, whatever they are.
#[derive(Clone, Copy)]
pub(super) struct Block<'a>(&'a [AtomicU64; BLOCK_WORDS]);

// Relaxed throughout, as in the tree.
impl<'a> Block<'a> {
    #[inline]
    pub(super) fn new(words: &'a [AtomicU64; BLOCK_WORDS]) -> Self {
        Block(words)
    }

    #[inline]
    pub(super) fn keys(&self) -> &'a [AtomicU64] {
        self.0.get(..BLOCK).unwrap_or_default()
    }

    /// The last slot whose start is not above an address, else the first.
    #[inline]
    pub(super) fn search(&self, address: u64) -> usize {
        let groups: &[Group] = self.keys().as_chunks().0;
        let later = groups.iter().skip(1).flat_map(|group| group.first());
        let group: usize = later
            .map(|key| usize::from(key.load(Relaxed) <= address))
            .sum();
        let within = groups.get(group).map_or(0, |group| last_in(group, address));
        group * GROUP + within
    }

    #[inline]
    fn rest(&self) -> &'a [[AtomicU64; 2]] {
        self.0.get(BLOCK..).unwrap_or_default().as_chunks().0
    }

    /// How many mappings it holds: at least one.
    pub(super) fn count(&self) -> usize {
        self.search(NONE - 1) + 1
    }

    /// The mapping in a slot: of words that may belong to several, for a reader.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<Mapping> {
        let [end, place] = self.rest().get(slot)?;
        Some(Mapping {
            start: self.keys().get(slot)?.load(Relaxed),
            end: end.load(Relaxed),
            place: Place(place.load(Relaxed)),
        })
    }

    pub(super) fn set(&self, slot: usize, mapping: Mapping) {
        let values = [mapping.end, mapping.place.0];
        let rest = self.rest().get(slot).into_iter().flatten();
        rest.zip(values)
            .for_each(|(word, value)| word.store(value, Relaxed));
        self.set_key(slot, mapping.start);
    }

    fn set_key(&self, slot: usize, key: u64) {
        if let Some(word) = self.keys().get(slot) {
            word.store(key, Relaxed);
        }
    }

    fn copy(&self, from: usize, to: usize) {
        if let Some(mapping) = self.get(from) {
            self.set(to, mapping);
        }
    }

    /// No mapping from this slot on.
    pub(super) fn clear(&self, from: usize) {
        (from..BLOCK).for_each(|slot| self.set_key(slot, NONE));
    }

    /// Puts a mapping into a slot; those from there on move up. There is room.
    pub(super) fn insert(&self, slot: usize, mapping: Mapping) {
        let count = self.count();
        (slot..count)
            .rev()
            .for_each(|from| self.copy(from, from + 1));
        self.set(slot, mapping);
    }

    /// Takes a mapping out; those behind it move down.
    pub(super) fn remove(&self, slot: usize) {
        let count = self.count();
        (slot + 1..count).for_each(|from| self.copy(from, from - 1));
        self.clear(count - 1);
    }

    /// Copies the mappings in `other` from a slot on behind the first `count` of
    /// this block's.
    pub(super) fn append(&self, count: usize, other: &Block, from: usize) {
        for slot in from..other.count() {
            if let Some(mapping) = other.get(slot) {
                self.set(count + slot - from, mapping);
            }
        }
    }
}
