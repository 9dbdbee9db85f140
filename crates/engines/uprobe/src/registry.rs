//! Which probe belongs to a place in a file: a hash table with open addressing over atomics.
//!
//! Probes are keyed by the file, so a new mapping has its probes at once, and an unmapped one loses
//! none.
//!
//! A bucket is a cache line of slots. A place is in its hash's bucket, or in the unbroken run of
//! used slots after it. All slots of a bucket are compared before a branch, so that the position
//! cannot be mispredicted. Removal moves later places of the run up, so that there are no
//! tombstones and searches stay short. It happens under the lock while the sequence of
//! [`crate::lookup`] is odd. A reader that races with it may miss a probe or take one for another,
//! so it must discard the answer.

use core::hint::select_unpredictable;

use crate::mapping::FileOffset;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

const SLOTS: usize = 4;

/// Places in the first half; in the second the probe at each, plus one, because 0 is a free slot.
type Bucket = [AtomicU64; 2 * SLOTS];

#[derive(Debug)]
pub(crate) struct Registry<'a> {
    buckets: &'a [Bucket],
    /// The number of slots, a power of two, minus one.
    mask: usize,
    /// The number of bits by which a hash is shifted right, because only its upper bits depend on
    /// all of the place.
    shift: u32,
    len: AtomicU64,
}

/// Returns the number of words for this many probes: at most half full, at least two buckets.
pub(crate) const fn words_for(probes: usize) -> usize {
    let slots = (2 * probes + 2).next_power_of_two();
    2 * if slots < 2 * SLOTS { 2 * SLOTS } else { slots }
}

// Relaxed throughout, as in the page table.
impl<'a> Registry<'a> {
    /// Returns an empty registry over zeroed words, [`words_for`] of them.
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
    fn bucket(&self, file_offset: FileOffset) -> usize {
        let hash = file_offset.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash.wrapping_shr(self.shift) as usize
    }

    /// Returns a place's probe. Speculative: see [`crate::lookup`].
    #[inline]
    pub(crate) fn get_speculative(&self, file_offset: FileOffset) -> Option<u32> {
        let bucket = self.buckets.get(self.bucket(file_offset))?;
        let mut probe = 0;
        for slot in 0..SLOTS {
            let is_it = bucket[slot].load(Relaxed) == file_offset.0;
            probe = select_unpredictable(is_it, bucket[SLOTS + slot].load(Relaxed), probe);
        }
        match probe {
            0 => self.search(file_offset).and_then(|(_, probe)| probe),
            probe => Some((probe - 1) as u32),
        }
    }

    fn read(&self, slot: usize) -> Option<(FileOffset, Option<u32>)> {
        let bucket = self.buckets.get(slot / SLOTS)?;
        let file_offset = bucket.get(slot % SLOTS)?.load(Relaxed);
        let probe = bucket.get(SLOTS + slot % SLOTS)?.load(Relaxed);
        Some((
            FileOffset(file_offset),
            probe.checked_sub(1).map(|probe| probe as u32),
        ))
    }

    fn write(&self, slot: usize, file_offset: FileOffset, probe: Option<u32>) {
        let Some(bucket) = self.buckets.get(slot / SLOTS) else {
            return;
        };
        let probe = probe.map_or(0, |probe| u64::from(probe) + 1);
        let words = bucket.iter().skip(slot % SLOTS).step_by(SLOTS);
        words
            .zip([file_offset.0, probe])
            .for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// Returns a place's slot and probe, or the free slot where it would go.
    #[cold]
    fn search(&self, file_offset: FileOffset) -> Option<(usize, Option<u32>)> {
        let mut slot = self.bucket(file_offset) * SLOTS;
        for _ in 0..=self.mask {
            let (found, probe) = self.read(slot)?;
            if found == file_offset || probe.is_none() {
                return Some((slot, probe));
            }
            slot = (slot + 1) & self.mask;
        }
        None
    }

    /// Puts a probe at a place, replacing any other, if there is room.
    pub(crate) fn insert(&self, file_offset: FileOffset, probe: u32) -> bool {
        let Some((slot, before)) = self.search(file_offset) else {
            return false;
        };
        let len = self.len.load(Relaxed) as usize;
        if before.is_none() && 2 * len >= self.mask {
            return false;
        }
        self.write(slot, file_offset, Some(probe));
        let len = len + usize::from(before.is_none());
        self.len.store(len as u64, Relaxed);
        true
    }

    pub(crate) fn remove(&self, file_offset: FileOffset) -> Option<u32> {
        let (mut hole, probe) = self.search(file_offset)?;
        let probe = probe?;
        let mut slot = hole;
        for _ in 0..self.mask {
            slot = (slot + 1) & self.mask;
            let (other, its) = self.read(slot)?;
            if its.is_none() {
                break;
            }
            // A place may move up to the hole unless its own bucket begins after it.
            let from_home = slot.wrapping_sub(self.bucket(other) * SLOTS) & self.mask;
            if from_home >= slot.wrapping_sub(hole) & self.mask {
                self.write(hole, other, its);
                hole = slot;
            }
        }
        self.write(hole, FileOffset(0), None);
        self.len.store(self.len.load(Relaxed) - 1, Relaxed);
        Some(probe)
    }
}
