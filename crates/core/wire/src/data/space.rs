//! Statistics of the agent's address space (`tiptoe-uprobe`, `feed`).
//!
//! Threads count in their slabs, because a shared counter would cost more than a lookup. Only the agent's thread
//! writes readings.

use super::Data;

/// Counters in each slab.
pub mod slots {
    /// Lookups without shared writes.
    pub const SPECULATIVE: u32 = 8;
    /// Lookups under the lock.
    pub const LOCKED: u32 = 9;
    /// Lookups that found no file or were uncertain.
    pub const MISSED: u32 = 10;
    /// Calls that change executable mappings of files.
    pub const CHANGES: u32 = 11;
    /// Calls that start a process with its own memory.
    pub const FORKS: u32 = 12;
}

const READINGS: usize = 32;
const CORRECTED: usize = 33;
const MAPPINGS: usize = 34;
const BYTES: usize = 35;
const KEPT_AT: usize = 36;
const KEPT_LEN: usize = 37;

/// Results of reading the list of mappings; a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// How often the list was read.
    pub readings: u64,
    /// Changes that no hook saw.
    pub corrected: u64,
    /// Executable mappings of files, merged if they continue each other.
    pub mappings: u64,
    /// Their bytes.
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

    /// Publishes the agent's tables, which a fork copies.
    pub fn set_kept(&self, at: u64, len: u64) {
        self.words.store(KEPT_AT, at);
        self.words.store(KEPT_LEN, len);
    }

    /// Returns this range.
    pub fn kept(&self) -> (u64, u64) {
        (self.words.load(KEPT_AT), self.words.load(KEPT_LEN))
    }

    /// Returns the last results, perhaps of different readings.
    pub fn readings(&self) -> Readings {
        Readings {
            readings: self.words.load(READINGS),
            corrected: self.words.load(CORRECTED),
            mappings: self.words.load(MAPPINGS),
            bytes: self.words.load(BYTES),
        }
    }
}
