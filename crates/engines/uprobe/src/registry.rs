//! Which probe belongs to an offset of a file: open addressing over atomics.
//!
//! Probes are keyed by the file, not by an address: a mapping that appears later
//! has its probes at once, and one that goes away loses none.
//!
//! A key is found at the slot that its hash names or in the unbroken run of used
//! slots behind it. Removal moves later keys of the run up, so there are no
//! tombstones and a search stays short. Such a move is under the lock and with
//! the sequence of [`crate::lookup`] odd; a reader that comes in between may miss
//! a key or take one probe for another, and throws its answer away.

use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// Words in a slot: the file, the offset, one more than the probe, and one that
/// keeps a slot within a cache line.
const SLOT: usize = 4;

/// The probes.
#[derive(Debug)]
pub(crate) struct Registry<'a> {
    slots: &'a [AtomicU64],
    /// One less than the number of slots, which is a power of two.
    mask: usize,
    len: AtomicU64,
}

/// How many words a registry of so many probes needs: it is half full at most.
pub(crate) const fn words_for(probes: usize) -> usize {
    (2 * probes + 1).next_power_of_two() * SLOT
}

// Relaxed throughout, as in the tree of mappings.
impl<'a> Registry<'a> {
    /// An empty one over zeroed words, as many as [`words_for`] says.
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        Registry {
            slots: words,
            mask: (words.len() / SLOT).saturating_sub(1),
            len: AtomicU64::new(0),
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&'a [AtomicU64]> {
        self.slots.get(index * SLOT..index * SLOT + SLOT)
    }

    /// A slot's key and one more than its probe.
    #[inline]
    fn read(&self, index: usize) -> Option<([u64; 2], u64)> {
        let [file, offset, probe, _] = self.slot(index)? else {
            return None;
        };
        Some((
            [file.load(Relaxed), offset.load(Relaxed)],
            probe.load(Relaxed),
        ))
    }

    fn write(&self, index: usize, [file, offset]: [u64; 2], probe: u64) {
        let words = self.slot(index).unwrap_or_default().iter();
        words
            .zip([file, offset, probe])
            .for_each(|(word, value)| word.store(value, Relaxed));
    }

    #[inline]
    fn home(&self, [file, offset]: [u64; 2]) -> usize {
        let mixed = file
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(offset)
            .wrapping_mul(0xd6e8_feb8_6659_fd93);
        (mixed >> 32) as usize & self.mask
    }

    /// Where a key is, or the free slot where it belongs.
    #[inline]
    fn search(&self, key: [u64; 2]) -> Option<(usize, u64)> {
        let home = self.home(key);
        for step in 0..=self.mask {
            let index = (home + step) & self.mask;
            let (found, probe) = self.read(index)?;
            if probe == 0 || found == key {
                return Some((index, probe));
            }
        }
        None
    }

    /// The probe at an offset of a file: to be thrown away unless the sequence or
    /// the lock says that nothing changed.
    #[inline]
    pub(crate) fn get_speculative(&self, file: u64, offset: u64) -> Option<u32> {
        let (_, probe) = self.search([file, offset])?;
        probe.checked_sub(1).map(|probe| probe as u32)
    }

    /// Puts a probe at an offset of a file, in place of another. False where
    /// there is no room.
    pub(crate) fn insert(&self, file: u64, offset: u64, probe: u32) -> bool {
        let Some((index, before)) = self.search([file, offset]) else {
            return false;
        };
        let len = self.len.load(Relaxed) as usize;
        if before == 0 && 2 * len >= self.mask {
            return false;
        }
        self.write(index, [file, offset], u64::from(probe) + 1);
        self.len
            .store((len + usize::from(before == 0)) as u64, Relaxed);
        true
    }

    /// Takes the probe at an offset of a file away, and says which it was.
    pub(crate) fn remove(&self, file: u64, offset: u64) -> Option<u32> {
        let (mut hole, probe) = self.search([file, offset])?;
        let probe = probe.checked_sub(1)? as u32;
        let mut index = hole;
        for _ in 0..self.mask {
            index = (index + 1) & self.mask;
            let (key, value) = self.read(index)?;
            if value == 0 {
                break;
            }
            // A key may move up to the hole unless its home lies behind it.
            let from_home = index.wrapping_sub(self.home(key)) & self.mask;
            if from_home >= index.wrapping_sub(hole) & self.mask {
                self.write(hole, key, value);
                hole = index;
            }
        }
        self.write(hole, [0, 0], 0);
        self.len.store(self.len.load(Relaxed) - 1, Relaxed);
        Some(probe)
    }
}
