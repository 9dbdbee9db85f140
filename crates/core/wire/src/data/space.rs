//! Statistics of the address space that the agent keeps (`tiptoe-uprobe`, `feed`), and of its copies.
//!
//! Lookups and forks are counted in each thread's slab, because a shared counter would cost more than the
//! lookup. Readings of the list of mappings are counted in the header, which only the agent's thread writes.

use super::Data;

/// Counters in each slab.
pub mod slots {
    /// The number of lookups that wrote no shared word.
    pub const SPECULATIVE: u32 = 8;
    /// The number of lookups under the lock.
    pub const LOCKED: u32 = 9;
    /// The number of lookups that found no file, or were uncertain.
    pub const MISSED: u32 = 10;
    /// The number of calls that change executable mappings of files.
    pub const CHANGES: u32 = 11;
    /// The number of calls that start a process with memory of its own.
    pub const FORKS: u32 = 12;
}

const READINGS: usize = 32;
const CORRECTED: usize = 33;
const MAPPINGS: usize = 34;
const BYTES: usize = 35;
const KEPT_AT: usize = 36;
const KEPT_LEN: usize = 37;

/// The results of reading the list of mappings; the target's claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// The number of times that the list was read.
    pub readings: u64,
    /// The number of differences found although nothing was in doubt: changes that no hook saw.
    pub corrected: u64,
    /// The number of executable mappings of files; adjacent ones that continue each other count as one.
    pub mappings: u64,
    /// The total size of the mappings in bytes.
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

    /// Publishes the range of the agent's tables, which a fork copies.
    pub fn set_kept(&self, at: u64, len: u64) {
        self.words.store(KEPT_AT, at);
        self.words.store(KEPT_LEN, len);
    }

    /// Returns the range of the agent's tables, as it claims.
    pub fn kept(&self) -> (u64, u64) {
        (self.words.load(KEPT_AT), self.words.load(KEPT_LEN))
    }

    /// Returns the last results; fields may be of different readings.
    pub fn readings(&self) -> Readings {
        Readings {
            readings: self.words.load(READINGS),
            corrected: self.words.load(CORRECTED),
            mappings: self.words.load(MAPPINGS),
            bytes: self.words.load(BYTES),
        }
    }
}
