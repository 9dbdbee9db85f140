//! Which probes belong to a place in a file: a hash table with open addressing over atomics.
//!
//! Probes are keyed by the file, so an unmapped file loses none. A file that is mapped twice has one
//! probe in each mapping, at the same place: each probe has a link to the next one there.
//!
//! A bucket is a cache line of slots. A place is in its hash's bucket, or in the unbroken run of
//! used slots after it. All slots of a bucket are compared before a branch, so that the position
//! cannot be mispredicted. Places are never removed. Links change under the lock while the sequence
//! of [`crate::lookup`] is odd. A reader that races with that may miss a probe, so it must discard
//! the answer.

use core::hint::select_unpredictable;

use crate::mapping::FileOffset;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

const SLOTS: usize = 4;
/// The most probes at one place that a lookup compares. Lookups miss the others.
const MOST_LINKS: usize = 64;
/// The link of a probe that has none after it. 0 is the link of a probe that was never inserted.
const LAST: u64 = 1;

/// Places in the first half; in the second the first probe at each, plus one, because 0 is a free slot.
type Bucket = [AtomicU64; 2 * SLOTS];

#[derive(Debug)]
pub(crate) struct Registry<'a> {
    buckets: &'a [Bucket],
    /// The link of each probe: the next probe at the same place, plus two.
    links: &'a [AtomicU64],
    /// The number of slots, a power of two, minus one.
    mask: usize,
    /// The number of bits by which a hash is shifted right, because only its upper bits depend on
    /// all of the place.
    shift: u32,
    len: AtomicU64,
}

/// Returns the number of words for this many probes.
pub(crate) const fn words_for(probes: usize) -> usize {
    words_of_table(probes) + probes
}

/// Returns the number of words of a table that is at most half full, with at least two buckets.
const fn words_of_table(probes: usize) -> usize {
    let slots = (2 * probes + 2).next_power_of_two();
    2 * if slots < 2 * SLOTS { 2 * SLOTS } else { slots }
}

// Relaxed throughout, as in the page table.
impl<'a> Registry<'a> {
    /// Returns an empty registry over zeroed words, if there are [`words_for`] this many probes.
    pub(crate) fn new(words: &'a [AtomicU64], probes: usize) -> Option<Self> {
        let (table, links) = words.split_at_checked(words_of_table(probes))?;
        let (buckets, _) = table.as_chunks();
        Some(Registry {
            buckets,
            links: links.get(..probes)?,
            mask: (buckets.len() * SLOTS).saturating_sub(1),
            shift: u64::BITS - buckets.len().trailing_zeros(),
            len: AtomicU64::new(0),
        })
    }

    #[inline]
    fn bucket(&self, file_offset: FileOffset) -> usize {
        let hash = file_offset.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash.wrapping_shr(self.shift) as usize
    }

    /// Returns the first probe at a place that `accept` takes. Speculative: see [`crate::lookup`].
    #[inline]
    pub(crate) fn get_speculative(
        &self,
        file_offset: FileOffset,
        accept: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let bucket = self.buckets.get(self.bucket(file_offset))?;
        let mut first = 0;
        for slot in 0..SLOTS {
            let is_it = bucket[slot].load(Relaxed) == file_offset.0;
            first = select_unpredictable(is_it, bucket[SLOTS + slot].load(Relaxed), first);
        }
        let first = match first {
            0 => self.search(file_offset).and_then(|(_, probe)| probe)?,
            probe => (probe - 1) as u32,
        };
        if accept(first) {
            return Some(first);
        }
        self.after(first)
            .take(MOST_LINKS)
            .find(|probe| accept(*probe))
    }

    /// Returns the probes after `probe` at its place.
    fn after(&self, probe: u32) -> impl Iterator<Item = u32> {
        core::iter::successors(Some(probe), |probe| self.next(*probe)).skip(1)
    }

    fn next(&self, probe: u32) -> Option<u32> {
        let link = self.link(probe)?.load(Relaxed);
        link.checked_sub(LAST + 1).map(|probe| probe as u32)
    }

    fn link(&self, probe: u32) -> Option<&AtomicU64> {
        self.links.get(probe as usize)
    }

    /// Returns whether a probe was inserted.
    pub(crate) fn has(&self, probe: u32) -> bool {
        self.link(probe).is_some_and(|link| link.load(Relaxed) != 0)
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

    fn write(&self, slot: usize, file_offset: FileOffset, probe: u32) {
        let Some(bucket) = self.buckets.get(slot / SLOTS) else {
            return;
        };
        let words = bucket.iter().skip(slot % SLOTS).step_by(SLOTS);
        words
            .zip([file_offset.0, u64::from(probe) + 1])
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

    /// Puts a probe at a place, before the others there, and removes those that `replaces` names.
    /// Returns `false` without room.
    pub(crate) fn insert(
        &self,
        file_offset: FileOffset,
        probe: u32,
        replaces: impl Fn(u32) -> bool,
    ) -> bool {
        let (Some((slot, first)), Some(link)) = (self.search(file_offset), self.link(probe)) else {
            return false;
        };
        let len = self.len.load(Relaxed) as usize;
        if first.is_none() && 2 * len >= self.mask {
            return false;
        }
        let len = len + usize::from(first.is_none());
        self.len.store(len as u64, Relaxed);
        // Each of the others is linked after the last one that stays. The bound ends a circle, which
        // only a program that overwrites this memory could make.
        let mut next = first;
        let mut last = link;
        for _ in 0..self.links.len() {
            let Some(other) = next else { break };
            next = self.next(other);
            let Some(its) = self.link(other) else { break };
            if other == probe || replaces(other) {
                its.store(0, Relaxed);
            } else {
                last.store(u64::from(other) + LAST + 1, Relaxed);
                last = its;
            }
        }
        last.store(LAST, Relaxed);
        self.write(slot, file_offset, probe);
        true
    }
}
