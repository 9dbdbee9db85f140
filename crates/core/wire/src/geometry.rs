//! The sizes of a data segment's parts. A *slab* is a thread's counters, a *slot* a counter's number, a *ring* a slab's
//! buffer for records of calls.

use crate::{futex, hits, ring, scopes};

/// Words in a page; few in models, where each word is costly.
pub(crate) const PAGE_WORDS: usize = if cfg!(tiptoe_loom) { 16 } else { 512 };
pub(crate) const ENTRY_WORDS: usize = 8;
/// The most records, and results, of a request.
pub const MAX_RECORDS: usize = if cfg!(tiptoe_loom) { 2 } else { 1 << 16 };
pub(crate) const CREDIT: u32 = 0;
/// The most bytes of all slabs, unless [`MIN_SLABS`] need more.
const MAX_SLAB_BYTES: usize = 1 << 30;
/// The least number of slabs; many, because threads without a slab are slow. Unwritten slabs take no memory.
const MIN_SLABS: usize = 512;
/// The most bytes of all slabs with rings. Lower than [`MAX_SLAB_BYTES`], because a thread writes its whole ring.
const MAX_RING_BYTES: usize = 1 << 29;
const RING_WORDS: usize = ring::CELLS * ring::CELL_WORDS;

/// A data segment's geometry, from which tiptoe and the target compute all offsets. The target reads the geometry from
/// the plan segment, which only tiptoe can write.
///
/// Slab 0 is the *overflow slab*: threads without a slab add to it atomically, so that counts are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Counters in each slab.
    pub slots: u32,
    /// The number of slabs, with the overflow slab.
    pub slabs: u32,
    /// Whether a ring of records follows each slab's counters.
    pub rings: bool,
    /// Whether breakpoints' hits follow the last slab.
    pub hits: bool,
}

/// What a session needs of a data segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The end of the slots that earlier sessions' patches use, or 0.
    pub known: u32,
    /// Counters in each slab.
    pub counters: u32,
    /// Whether slabs record waits for locks.
    pub locks: bool,
    /// Whether slabs record scopes.
    pub scopes: bool,
    /// Whether slabs have a ring of records.
    pub rings: bool,
    /// Whether the segment records hits of breakpoints.
    pub hits: bool,
}

/// A data segment's areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The segment's geometry.
    pub geometry: Geometry,
    /// The first slot of waits for locks, or 0.
    pub lock_slot: u32,
    /// The first slot of scopes, or 0.
    pub scope_slot: u32,
}

impl Layout {
    /// Lays out the areas for all needs.
    pub fn of(needs: &Needs) -> Layout {
        let locks = if needs.locks { futex::WIDTH } else { 0 };
        let scopes = if needs.scopes { scopes::WIDTH } else { 0 };
        let free = needs.known.max(Geometry::FIRST_SLOT);
        let own = needs.counters.saturating_add(locks + scopes);
        let slots = Geometry::for_slots(needs.known.saturating_add(own), needs.rings);
        Layout {
            geometry: Geometry {
                // With breakpoints alone, threads need no slabs.
                slabs: if needs.hits && own == 0 {
                    2
                } else {
                    slots.slabs
                },
                hits: needs.hits,
                ..slots
            },
            lock_slot: if needs.locks { free } else { 0 },
            scope_slot: if needs.scopes { free + locks } else { 0 },
        }
    }
}

impl Geometry {
    /// The size of a slab's directory entry, which names the slab's thread.
    pub const ENTRY_BYTES: usize = ENTRY_WORDS * 8;

    /// The slot that counts the thread's open calls of the function to which `--under` limits counting. The count must
    /// be changed atomically, because a call may end on another thread.
    pub const INSIDE: u32 = 1;

    /// The slot of the thread's scope node.
    pub const SCOPE: u32 = 4;

    /// The first counter, after the slab's own words.
    pub const FIRST_SLOT: u32 = crate::FIRST_SLOT;

    /// Returns the geometry for `slots` counters per slab, with 512 to 16,384 slabs.
    pub fn for_slots(slots: u32, rings: bool) -> Geometry {
        let shape = Geometry {
            slots: slots.max(1).saturating_add(Self::FIRST_SLOT),
            slabs: 0,
            rings,
            hits: false,
        };
        let most = if rings {
            MAX_RING_BYTES
        } else {
            MAX_SLAB_BYTES
        };
        let slabs = (most / (shape.stride() * 8)).clamp(MIN_SLABS, 16_384) as u32;
        Geometry { slabs, ..shape }
    }

    /// Returns a slab's length in words: whole pages, so that a first hit touches one page, and a first record
    /// another.
    pub fn stride(&self) -> usize {
        let ring = if self.rings { RING_WORDS } else { 0 };
        self.counter_words() + ring.next_multiple_of(PAGE_WORDS)
    }

    fn counter_words(&self) -> usize {
        (self.slots as usize).next_multiple_of(PAGE_WORDS)
    }

    pub(crate) fn ring(&self, index: u32) -> Option<(usize, usize)> {
        let there = self.rings && index < self.slabs;
        there.then(|| (self.slab(index) + self.counter_words(), RING_WORDS))
    }

    /// Returns the distance in bytes from a slab to its ring.
    pub fn ring_offset(&self) -> u64 {
        self.counter_words() as u64 * 8
    }

    pub(crate) const fn results() -> usize {
        PAGE_WORDS
    }

    pub(crate) fn entry(&self, index: u32) -> usize {
        Self::results() + MAX_RECORDS + index as usize * ENTRY_WORDS
    }

    /// Returns the first word of slab `index`.
    pub fn slab(&self, index: u32) -> usize {
        let directory_end = self.entry(self.slabs);
        directory_end.next_multiple_of(PAGE_WORDS) + index as usize * self.stride()
    }

    /// Returns the byte offset of slab `index`'s directory entry.
    pub fn entry_offset(&self, index: u32) -> u64 {
        self.entry(index) as u64 * 8
    }

    /// Returns the byte offset of slab `index`.
    pub fn slab_offset(&self, index: u32) -> u64 {
        self.slab(index) as u64 * 8
    }

    /// Returns the slab at this byte offset.
    pub fn slab_at(&self, offset: u64) -> Option<u32> {
        let distance = offset.checked_sub(self.slab_offset(0))?;
        let stride = self.stride() as u64 * 8;
        let index = u32::try_from(distance / stride).ok()?;
        (distance % stride == 0 && index < self.slabs).then_some(index)
    }

    pub(crate) fn hits(&self) -> Option<(usize, usize)> {
        self.hits
            .then(|| (self.slab(self.slabs), hits::WORDS as usize))
    }

    /// Returns the segment's size in bytes.
    pub fn data_bytes(&self) -> u64 {
        let hits = self.hits().map_or(0, |(_, words)| words);
        (self.slab(self.slabs) + hits) as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_slabs_are_pages() {
        let shapes = [1, 511, 512, 513, 10_000, 1_000_000]
            .into_iter()
            .flat_map(|slots| [false, true].map(|rings| (slots, rings)));
        for (slots, rings) in shapes {
            let g = Geometry::for_slots(slots, rings);
            assert!(g.entry(g.slabs) <= g.slab(0));
            assert_eq!(g.slab(0) % PAGE_WORDS, 0);
            assert!(g.stride() >= slots as usize);
            if let Some((first, words)) = g.ring(1) {
                assert!(first >= g.slab(1) + slots as usize);
                assert!(first + words <= g.slab(2));
            }
            assert_eq!(g.slab(g.slabs) * 8, g.data_bytes() as usize);
            assert!((512..=16_384).contains(&g.slabs));
            assert_eq!(g.slab_at(g.slab_offset(3)), Some(3));
            assert_eq!(g.slab_at(g.slab_offset(3) + 8), None);
            assert_eq!(g.slab_at(g.slab_offset(g.slabs)), None);
            assert_eq!(g.slab_at(0), None);
        }
    }

    #[test]
    fn areas_of_all_instruments_are_apart() {
        let every = |bits: u32| Needs {
            known: if bits & 1 == 0 { 0 } else { 700 },
            counters: if bits & 2 == 0 { 0 } else { 90 },
            locks: bits & 4 != 0,
            scopes: bits & 8 != 0,
            rings: bits & 16 != 0,
            hits: bits & 32 != 0,
        };
        for needs in (0..64).map(every) {
            let layout = Layout::of(&needs);
            let g = layout.geometry;
            let mut free = needs.known.max(Geometry::FIRST_SLOT);
            for (is_there, slot, width) in [
                (needs.locks, layout.lock_slot, futex::WIDTH),
                (needs.scopes, layout.scope_slot, scopes::WIDTH),
            ] {
                assert_eq!(slot, if is_there { free } else { 0 }, "{needs:?}");
                free += if is_there { width } else { 0 };
            }
            assert!(free + needs.counters <= g.slots, "{needs:?}");
            let first_ring = g.ring(0).map_or(g.slab(1), |(first, _)| first);
            assert!(first_ring >= g.slab(0) + g.slots as usize, "{needs:?}");
            let slabs_end = g.slab(g.slabs);
            let (hits, words) = g.hits().unwrap_or((slabs_end, 0));
            assert!(hits == slabs_end && hits % 16 == 0, "{needs:?}");
            assert_eq!(g.data_bytes() as usize, (hits + words) * 8, "{needs:?}");
            assert!(needs.hits || words == 0);
        }
    }
}
