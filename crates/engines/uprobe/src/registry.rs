//! Finds the probes at a place in a file, by an open-addressed hash table of atomics.
//!
//! Keys are places, not addresses, so that unmapping loses no probe. A file that is mapped twice may have a probe in
//! each mapping, so a place has a linked list of probes.
//!
//! A bucket is a cache line of slots. A place is in its hash's bucket, or in the unbroken run of used slots from that
//! bucket on. A bucket's slots are compared without branches, which would be mispredicted. Places are never removed.
//! Links change under the lock while the sequence of [`crate::lookup`] is odd, so a reader that thereby misses a probe
//! tries again.
//!
//! A table of N slots is in slots N to 2 N of the memory, so that each size has its own range. The table begins small,
//! so that few probes touch little memory, and doubles before it is more than half full.

use core::hint::select_unpredictable;

use crate::mapping::FileOffset;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

const SLOTS: usize = 4;
const FIRST_SLOTS: usize = 2 * SLOTS;
/// The most probes compared at one place after the first.
const MOST_LINKS: usize = 64;
/// The link of the last probe at a place.
const LAST: u64 = 1;

/// The slots' places; then, for each slot, its first probe plus one, or 0 if it is free.
type Bucket = [AtomicU64; 2 * SLOTS];

#[derive(Debug)]
pub(crate) struct Registry<'a> {
    buckets: &'a [Bucket],
    /// For each probe: the next probe at its place plus two, or [`LAST`]; 0 if the probe is at no place.
    links: &'a [AtomicU64],
    slots: AtomicU64,
    len: AtomicU64,
}

pub(crate) const fn words_for(probes: usize) -> usize {
    words_of_table(probes) + probes
}

const fn words_of_table(probes: usize) -> usize {
    2 * 2 * most_slots(probes)
}

const fn most_slots(probes: usize) -> usize {
    let slots = (2 * probes + 2).next_power_of_two();
    if slots < FIRST_SLOTS {
        FIRST_SLOTS
    } else {
        slots
    }
}

// Relaxed throughout, as in `Mappings`.
impl<'a> Registry<'a> {
    pub(crate) fn new(words: &'a [AtomicU64], probes: usize) -> Option<Self> {
        let (table, links) = words.split_at_checked(words_of_table(probes))?;
        let (buckets, _) = table.as_chunks();
        Some(Registry {
            buckets,
            links: links.get(..probes)?,
            slots: AtomicU64::new(FIRST_SLOTS as u64),
            len: AtomicU64::new(0),
        })
    }

    fn slots(&self) -> usize {
        self.slots.load(Relaxed) as usize
    }

    /// Takes the hash's upper bits, because only these depend on the whole place.
    #[inline]
    fn bucket(slots: usize, file_offset: FileOffset) -> usize {
        let hash = file_offset.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let buckets = slots / SLOTS;
        hash.wrapping_shr(u64::BITS - buckets.trailing_zeros()) as usize + buckets
    }

    /// Returns the first probe that `accept` takes. Speculative: see [`crate::lookup`].
    #[inline]
    pub(crate) fn get_speculative(
        &self,
        file_offset: FileOffset,
        accept: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let slots = self.slots();
        let bucket = self.buckets.get(Self::bucket(slots, file_offset))?;
        let mut first = 0;
        for slot in 0..SLOTS {
            let is_it = bucket[slot].load(Relaxed) == file_offset.0;
            first = select_unpredictable(is_it, bucket[SLOTS + slot].load(Relaxed), first);
        }
        let first = match first {
            0 => self
                .search(slots, file_offset)
                .and_then(|(_, probe)| probe)?,
            probe => (probe - 1) as u32,
        };
        if accept(first) {
            return Some(first);
        }
        self.after(first)
            .take(MOST_LINKS)
            .find(|probe| accept(*probe))
    }

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

    /// Returns a place's slot and probe, or the free slot for it.
    #[cold]
    fn search(&self, slots: usize, file_offset: FileOffset) -> Option<(usize, Option<u32>)> {
        let first = Self::bucket(slots, file_offset) * SLOTS;
        for distance in 0..slots {
            let slot = slots + (first.wrapping_add(distance) & slots.wrapping_sub(1));
            let (found, probe) = self.read(slot)?;
            if found == file_offset || probe.is_none() {
                return Some((slot, probe));
            }
        }
        None
    }

    fn grow(&self) -> Option<()> {
        let slots = self.slots();
        if slots > self.buckets.len() * SLOTS / 4 {
            return None;
        }
        for slot in slots..2 * slots {
            if let (file_offset, Some(first)) = self.read(slot)? {
                let (slot, _) = self.search(2 * slots, file_offset)?;
                self.write(slot, file_offset, first);
            }
        }
        self.slots.store(2 * slots as u64, Relaxed);
        Some(())
    }

    /// Puts a probe (new or already there) first at a place. Returns `false` without room.
    pub(crate) fn insert(
        &self,
        file_offset: FileOffset,
        probe: u32,
        replaces: impl Fn(u32) -> bool,
    ) -> bool {
        let len = self.len.load(Relaxed) as usize;
        let is_half_full = |len: usize| len.saturating_mul(2) >= self.slots();
        if is_half_full(len.saturating_add(1)) && self.grow().is_none() && is_half_full(len) {
            return false;
        }
        let (Some((slot, first)), Some(link)) =
            (self.search(self.slots(), file_offset), self.link(probe))
        else {
            return false;
        };
        let len = len + usize::from(first.is_none());
        self.len.store(len as u64, Relaxed);
        // Links the other probes that stay. Bounded, because the traced program could write a circle.
        let mut next = first;
        let mut last = link;
        // Saved, because the loop overwrites this link, which leads to other probes if the probe is added again.
        let own = self.next(probe);
        for _ in 0..self.links.len() {
            let Some(other) = next else { break };
            if other == probe {
                next = own;
                continue;
            }
            next = self.next(other);
            let Some(its) = self.link(other) else { break };
            if replaces(other) {
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
