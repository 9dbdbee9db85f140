//! Which probe belongs to a place in a file: open addressing over atomics.
//!
//! Probes are keyed by the file, not by an address: a mapping that appears later
//! has its probes at once, and one that goes away loses none.
//!
//! Slots lie in buckets, a cache line each. A place is found in the bucket that its
//! hash names or in the unbroken run of used slots behind it; all slots of a bucket
//! are compared before a branch is taken, so that which one it is costs nothing.
//! Removal moves later places of the run up, so there are no tombstones and a
//! search stays short. Such a move is under the lock and with the sequence of
//! [`crate::lookup`] odd; a reader that comes in between may miss one or take one
//! probe for another, and throws its answer away.

use core::hint::select_unpredictable;

use crate::mapping::Place;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// Slots in a bucket.
const SLOTS: usize = 4;

/// First the places, then one more than the probe at each. A cache line.
type Bucket = [AtomicU64; 2 * SLOTS];

/// The probes.
#[derive(Debug)]
pub(crate) struct Registry<'a> {
    buckets: &'a [Bucket],
    /// One less than the number of slots, which is a power of two.
    mask: usize,
    /// How many bits of a hash are too many: its upper ones depend on all of the
    /// place.
    shift: u32,
    len: AtomicU64,
}

/// How many words a registry of so many probes needs: it is half full at most,
/// and has two buckets at least.
pub(crate) const fn words_for(probes: usize) -> usize {
    let slots = (2 * probes + 2).next_power_of_two();
    2 * if slots < 2 * SLOTS { 2 * SLOTS } else { slots }
}

// Relaxed throughout, as in the page table.
impl<'a> Registry<'a> {
    /// An empty one over zeroed words, as many as [`words_for`] says.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        let (buckets, _) = words.as_chunks();
        Registry {
            buckets,
            mask: (buckets.len() * SLOTS).saturating_sub(1),
            shift: u64::BITS - buckets.len().trailing_zeros(),
            len: AtomicU64::new(0),
        }
    }

    #[inline]
    fn bucket(&self, place: Place) -> usize {
        let hash = place.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash.wrapping_shr(self.shift) as usize
    }

    /// The probe at a place: to be thrown away unless the sequence or the lock
    /// says that nothing changed.
    #[inline]
    pub(crate) fn get_speculative(&self, place: Place) -> Option<u32> {
        let bucket = self.buckets.get(self.bucket(place))?;
        let mut probe = 0;
        for slot in 0..SLOTS {
            let is_it = bucket[slot].load(Relaxed) == place.0;
            probe = select_unpredictable(is_it, bucket[SLOTS + slot].load(Relaxed), probe);
        }
        match probe {
            0 => self.search(place).and_then(|(_, probe)| probe),
            probe => Some((probe - 1) as u32),
        }
    }

    /// A slot's place and its probe.
    fn read(&self, slot: usize) -> Option<(Place, Option<u32>)> {
        let bucket = self.buckets.get(slot / SLOTS)?;
        let place = bucket.get(slot % SLOTS)?.load(Relaxed);
        let probe = bucket.get(SLOTS + slot % SLOTS)?.load(Relaxed);
        Some((Place(place), probe.checked_sub(1).map(|probe| probe as u32)))
    }

    fn write(&self, slot: usize, place: Place, probe: Option<u32>) {
        let Some(bucket) = self.buckets.get(slot / SLOTS) else {
            return;
        };
        let probe = probe.map_or(0, |probe| u64::from(probe) + 1);
        let words = bucket.iter().skip(slot % SLOTS).step_by(SLOTS);
        words
            .zip([place.0, probe])
            .for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// Where a place is, or the free slot where it belongs.
    #[cold]
    fn search(&self, place: Place) -> Option<(usize, Option<u32>)> {
        let mut slot = self.bucket(place) * SLOTS;
        for _ in 0..=self.mask {
            let (found, probe) = self.read(slot)?;
            if found == place || probe.is_none() {
                return Some((slot, probe));
            }
            slot = (slot + 1) & self.mask;
        }
        None
    }

    /// Puts a probe at a place, instead of another. False where there is no room.
    pub(crate) fn insert(&self, place: Place, probe: u32) -> bool {
        let Some((slot, before)) = self.search(place) else {
            return false;
        };
        let len = self.len.load(Relaxed) as usize;
        if before.is_none() && 2 * len >= self.mask {
            return false;
        }
        self.write(slot, place, Some(probe));
        let len = len + usize::from(before.is_none());
        self.len.store(len as u64, Relaxed);
        true
    }

    /// Takes the probe at a place away, and says which it was.
    pub(crate) fn remove(&self, place: Place) -> Option<u32> {
        let (mut hole, probe) = self.search(place)?;
        let probe = probe?;
        let mut slot = hole;
        for _ in 0..self.mask {
            slot = (slot + 1) & self.mask;
            let (other, its) = self.read(slot)?;
            if its.is_none() {
                break;
            }
            // One may move up to the hole unless its bucket begins behind that.
            let from_home = slot.wrapping_sub(self.bucket(other) * SLOTS) & self.mask;
            if from_home >= slot.wrapping_sub(hole) & self.mask {
                self.write(hole, other, its);
                hole = slot;
            }
        }
        self.write(hole, Place(0), None);
        self.len.store(self.len.load(Relaxed) - 1, Relaxed);
        Some(probe)
    }
}
