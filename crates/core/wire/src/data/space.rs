//! Statistics of the agent's model of the address space. The model is a copy of the kernel's list of mappings
//! (`tiptoe-uprobe`, `feed`).
//!
//! Each thread counts in its own *slab*, because a shared counter would cost more than a lookup. Only the agent's
//! thread writes [`Readings`].

use core::ops::Range;

use super::Data;
use crate::primitive::Ordering::{Acquire, Relaxed, Release};

/// Counters in each slab.
pub mod slots {
    /// Lookups of a trap's probe without the model's lock.
    pub const SPECULATIVE: u32 = 8;
    /// Lookups under the lock.
    pub const LOCKED: u32 = 9;
    /// Lookups that found no probe for a trap at a known site.
    pub const MISSED: u32 = 10;
    /// System calls that change executable mappings of files.
    pub const CHANGES: u32 = 11;
    /// System calls that start a process with its own memory.
    pub const FORKS: u32 = 12;
    /// Lookups that failed because mappings changed or the lock stayed taken. [`MISSED`] does not include these.
    pub const UNSURE: u32 = 13;
}

const READINGS: usize = 32;
const CORRECTED: usize = 33;
const MAPPINGS: usize = 34;
const BYTES: usize = 35;
const KEPT_AT: usize = 36;
const KEPT_LEN: usize = 37;
/// The number of ranges without patches; after it each range's begin and end.
const UNPATCHED: usize = 40;
const MOST_UNPATCHED: usize = 10;

/// Results of reading the list of mappings. Hostile input, because the traced program can write this memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// How often the list was read.
    pub readings: u64,
    /// Changes that no hook saw.
    pub corrected: u64,
    /// Executable mappings of files; adjacent mappings count as one.
    pub mappings: u64,
    /// Bytes of the executable mappings of files.
    pub bytes: u64,
}

impl Data<'_> {
    /// Publishes the results.
    pub fn set_readings(&self, readings: &Readings) {
        self.words.store(MAPPINGS, readings.mappings);
        self.words.store(BYTES, readings.bytes);
        self.words.store(CORRECTED, readings.corrected);
        self.words.store(READINGS, readings.readings);
    }

    /// Publishes where the agent's tables are. tiptoe counts the copies that forks make of the tables as a cost.
    pub fn set_kept(&self, at: u64, len: u64) {
        self.words.store(KEPT_AT, at);
        self.words.store(KEPT_LEN, len);
    }

    /// Returns the address and length of the agent's tables.
    pub fn kept(&self) -> (u64, u64) {
        (self.words.load(KEPT_AT), self.words.load(KEPT_LEN))
    }

    /// Records the range in which code was patched, after the program moved that code, or mapped it again, without the
    /// patches. Any thread of the program may call this.
    pub fn put_unpatched(&self, code: Range<u64>) {
        let covers = |known: Range<u64>| known.start <= code.start && code.end <= known.end;
        if self.unpatched().is_none_or(|mut known| known.any(covers)) {
            return;
        }
        // The addition gives each range its own words. Relaxed: a range's end says whether the range is complete.
        let number = self
            .words
            .at(UNPATCHED)
            .map(|word| word.fetch_add(1, Relaxed));
        let at = number.and_then(|number| usize::try_from(number).ok());
        if let Some(at) = at.filter(|at| *at < MOST_UNPATCHED) {
            self.words.store(UNPATCHED + 1 + 2 * at, code.start);
            if let Some(end) = self.words.at(UNPATCHED + 2 + 2 * at) {
                end.store(code.end, Release); // pairs with `unpatched`, which must not see the end without the start
            }
        }
    }

    /// Returns the recorded ranges; `None` if there were too many. A range that is still being recorded is empty.
    pub fn unpatched(&self) -> Option<impl Iterator<Item = Range<u64>>> {
        let count = self
            .words
            .at(UNPATCHED)
            .map_or(0, |word| word.load(Relaxed)); // Relaxed: as in `put_unpatched`
        let count = usize::try_from(count)
            .ok()
            .filter(|count| *count <= MOST_UNPATCHED)?;
        Some((0..count).map(move |at| {
            let end = self.words.at(UNPATCHED + 2 + 2 * at);
            let end = end.map_or(0, |end| end.load(Acquire)); // pairs with `put_unpatched`
            self.words.load(UNPATCHED + 1 + 2 * at)..end
        }))
    }

    /// Returns the last results, perhaps mixed from two readings.
    pub fn readings(&self) -> Readings {
        Readings {
            readings: self.words.load(READINGS),
            corrected: self.words.load(CORRECTED),
            mappings: self.words.load(MAPPINGS),
            bytes: self.words.load(BYTES),
        }
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use crate::{Data, Geometry, Words};
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole segment, word by word")]
    fn ranges_without_patches_are_recorded_once_until_there_are_too_many() {
        let geometry = Geometry {
            slots: 4,
            slabs: 2,
            rings: false,
            hits: false,
        };
        let words: Vec<AtomicU64> = (0..geometry.data_bytes() / 8)
            .map(|_| AtomicU64::new(0))
            .collect();
        let data = Data::new(Words::new(&words), geometry).unwrap();
        let ranges = || data.unpatched().map(Vec::from_iter);
        assert_eq!(ranges().map(|ranges| ranges.len()), Some(0));
        data.put_unpatched(0x1000..0x3000);
        data.put_unpatched(0x2000..0x3000);
        assert_eq!(
            ranges().and_then(|ranges| ranges.first().cloned()),
            Some(0x1000..0x3000)
        );
        assert_eq!(ranges().map(|ranges| ranges.len()), Some(1));
        (1..10).for_each(|at| data.put_unpatched(at << 16..(at << 16) + 1));
        assert_eq!(ranges().map(|ranges| ranges.len()), Some(10));
        data.put_unpatched(0x90_0000..0x91_0000);
        data.put_unpatched(0x92_0000..0x93_0000);
        assert_eq!(ranges(), None);
    }
}
