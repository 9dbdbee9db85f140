//! What the agent tells of the address space that it keeps (`tiptoe-uprobe`, `feed`).
//!
//! How lookups went is counted in each thread's own slab, in front of its counters: a
//! count that all threads share would cost more than the lookup. What comes of reading
//! the list of mappings is the agent's thread's alone and stands in the header.

use super::Data;

/// How often, and what of it: slots of each slab.
pub mod slots {
    /// Lookups that wrote nothing that another thread reads.
    pub const SPECULATIVE: u32 = 8;
    /// Lookups under the lock.
    pub const LOCKED: u32 = 9;
    /// Lookups without an answer: nothing was there, or not surely.
    pub const MISSED: u32 = 10;
    /// Calls of the program's that change what of files can be run where.
    pub const CHANGES: u32 = 11;
}

const READINGS: usize = 32;
const CORRECTED: usize = 33;
const MAPPINGS: usize = 34;
const BYTES: usize = 35;

/// What came of reading the list of mappings: the target's claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// How often the list was read.
    pub readings: u64,
    /// How many changes nobody had seen, by what was wrong when nothing was in doubt.
    pub corrected: u64,
    /// Mappings of files that can be executed; those that continue each other are one.
    pub mappings: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Data<'_> {
    /// Tells what came of reading. (agent's thread)
    pub fn set_readings(&self, told: &Readings) {
        self.words.store(MAPPINGS, told.mappings);
        self.words.store(BYTES, told.bytes);
        self.words.store(CORRECTED, told.corrected);
        self.words.store(READINGS, told.readings);
    }

    /// What came of reading, as it was told last; not all of it may be of one time. (tiptoe)
    pub fn readings(&self) -> Readings {
        Readings {
            readings: self.words.load(READINGS),
            corrected: self.words.load(CORRECTED),
            mappings: self.words.load(MAPPINGS),
            bytes: self.words.load(BYTES),
        }
    }
}
