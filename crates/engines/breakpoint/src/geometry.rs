//! The size and layout of the accounting's memory. *Slot*: a debug register; *entry*: a task's reservation; *shard*:
//! the tasks under one lock.
//!
//! ```text
//! header | heads of shards: lock, free entries, counters, histograms | hash buckets of shards | CPUs | entries
//! ```

use crate::request::Kind;
use crate::stats;

/// The most CPUs.
pub const MAX_CPUS: u32 = 1 << 14;
/// The most slots of a register file.
pub const MAX_SLOTS: u32 = 16;
/// The most reservations in [`Geometry::of_process`].
pub const PROCESS_RESERVATIONS: u32 = 1 << 17;
const MAX_RESERVATIONS: u32 = 1 << 24;
const MAX_SHARDS: u32 = 1 << 16;

/// The alignment, in words, of data of different CPUs: two cache lines, because CPUs prefetch lines in pairs.
const LINE: usize = 16;

pub(crate) mod header {
    use super::LINE;
    /// For each register file: the CPU-wide slots in use on the CPU that has the most. Alone in its line, because each
    /// task's request reads it.
    pub(crate) const WIDEST: usize = 0;
    pub(crate) const BACKEND: usize = LINE;
    pub(crate) const FRESH: usize = LINE + 1;
    pub(crate) const CPUS: usize = 2 * LINE;
    pub(crate) const STATS: usize = CPUS + 1;
    pub(crate) const WORDS: usize = 3 * LINE;
}

pub(crate) mod head {
    /// The first free entry's index plus one. The word before is the lock.
    pub(crate) const FREE: usize = 1;
    pub(crate) const STATS: usize = 2;
    /// For each register file: the largest number of slots that one task has, then how many tasks have each number of
    /// slots. Slots that a task reserved on only one CPU do not count.
    pub(crate) const FILES: usize = STATS + super::stats::WORDS;
    pub(crate) const FILE: usize = 1 + super::MAX_SLOTS as usize;
}
/// The words of a shard's head. x86's four slots use only the first two cache lines.
pub(crate) const HEAD: usize = (head::FILES + 2 * head::FILE).next_multiple_of(LINE);

pub(crate) const ENTRY: usize = 4;

/// A CPU's debug registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// Each register takes data or instructions (x86).
    Mixed(u32),
    /// Separate registers (arm64).
    Separate {
        /// How many are for data.
        data: u32,
        /// How many are for instructions.
        instruction: u32,
    },
}

/// A state's sizes. All processes that share a state must use the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    cpus: u32,
    registers: Registers,
    reservations: u32,
    shards: u32,
}

impl Geometry {
    /// Returns the geometry for `cpus` CPUs; `None` if an argument is 0 or too large. `reservations`, the limit,
    /// should be twice the expected number, because a request that finds its shard full locks all shards.
    pub fn new(cpus: u32, registers: Registers, reservations: u32) -> Option<Geometry> {
        let (fewest, most) = match registers {
            Registers::Mixed(slots) => (slots, slots),
            Registers::Separate { data, instruction } => {
                (data.min(instruction), data.max(instruction))
            }
        };
        let is_sane = (1..=MAX_CPUS).contains(&cpus)
            && (1..=MAX_RESERVATIONS).contains(&reservations)
            && fewest >= 1
            && most <= MAX_SLOTS;
        let geometry = Geometry {
            cpus,
            registers,
            reservations,
            shards: 1,
        };
        is_sane.then(|| geometry.with_shards(4 * cpus))
    }

    /// Returns the geometry for an x86 process whose threads, at most 16,384, reserve their own slots in memory shared
    /// with tiptoe. With many shards, few threads wait for a thread that loses its CPU while it holds a lock.
    pub fn of_process(cpus: u32) -> Option<Geometry> {
        let geometry = Geometry::new(cpus, Registers::Mixed(4), PROCESS_RESERVATIONS)?;
        Some(geometry.with_shards(geometry.shards.max(256)))
    }

    /// Returns the geometry with at least this many shards (four per CPU by default; one for one CPU).
    pub fn with_shards(self, shards: u32) -> Geometry {
        let shards = match self.cpus {
            1 => 1,
            _ => shards.clamp(1, MAX_SHARDS).next_power_of_two(),
        };
        Geometry { shards, ..self }
    }

    /// Returns the number of words. Their address should be a multiple of 128, two cache lines.
    pub fn words(&self) -> usize {
        Layout::new(self).words
    }

    /// Returns the number of CPUs.
    #[inline]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Returns the number of shards.
    #[inline]
    pub fn shards(&self) -> usize {
        self.shards as usize
    }

    /// Returns the shard of a task.
    pub fn shard(&self, task: u64) -> usize {
        Layout::new(self).shard_and_bucket(task).0
    }

    /// Returns the number of a kind's slots.
    #[inline]
    pub fn slots(&self, kind: Kind) -> u32 {
        match (self.registers, kind) {
            (Registers::Mixed(slots), _) => slots,
            (Registers::Separate { data, .. }, Kind::Data) => data,
            (Registers::Separate { instruction, .. }, Kind::Instruction) => instruction,
        }
    }

    #[inline]
    pub(crate) fn file(&self, kind: Kind) -> usize {
        match (self.registers, kind) {
            (Registers::Separate { .. }, Kind::Instruction) => 1,
            _ => 0,
        }
    }
}

/// The sizes and offsets of a [`Geometry`] in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) files: usize,
    /// Slots of the larger register file.
    pub(crate) levels: usize,
    pub(crate) shards: usize,
    pub(crate) buckets: usize,
    pub(crate) bucket_stride: usize,
    /// How many unused entries a shard takes at once: many, to take entries rarely, but only a fraction of its share.
    pub(crate) batch: usize,
    pub(crate) file_words: usize,
    pub(crate) cpu_stride: usize,
    pub(crate) buckets_at: usize,
    pub(crate) cpus_at: usize,
    pub(crate) entries_at: usize,
    pub(crate) words: usize,
}

impl Layout {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let (files, slots) = match geometry.registers {
            Registers::Mixed(slots) => (1, slots),
            Registers::Separate { data, instruction } => (2, data.max(instruction)),
        };
        let (levels, shards) = (slots as usize, geometry.shards as usize);
        let share = geometry.reservations / geometry.shards;
        let buckets = share.max(1).next_power_of_two() as usize;
        let bucket_stride = buckets.next_multiple_of(LINE);
        let file_words = 3 + 2 * levels;
        let cpu_stride = (files * file_words).next_multiple_of(LINE / 2);
        let buckets_at = header::WORDS + shards * HEAD;
        let cpus_at = buckets_at + shards * bucket_stride;
        let entries_at = cpus_at + geometry.cpus as usize * cpu_stride;
        let reservations = geometry.reservations as usize;
        Layout {
            files,
            levels,
            shards,
            buckets,
            bucket_stride,
            batch: (share / 4).clamp(1, 32) as usize,
            file_words,
            cpu_stride,
            buckets_at,
            cpus_at,
            entries_at,
            words: entries_at + reservations * ENTRY,
        }
    }

    /// Returns a task's shard, and the index of its bucket among those of all shards.
    #[inline]
    pub(crate) fn shard_and_bucket(&self, task: u64) -> (usize, usize) {
        let hash = hash(task);
        let shard = hash as usize & (self.shards - 1);
        let bucket = (hash >> 16) as usize & (self.buckets - 1);
        (shard, shard * self.bucket_stride + bucket)
    }
}

/// Hashes a task; the lower half depends on all bits.
#[inline]
fn hash(task: u64) -> u64 {
    let mixed = task.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_numbers_are_refused() {
        let mixed = Registers::Mixed(4);
        assert!(Geometry::new(0, mixed, 1).is_none());
        assert!(Geometry::new(MAX_CPUS + 1, mixed, 1).is_none());
        assert!(Geometry::new(1, mixed, 0).is_none());
        assert!(Geometry::new(1, Registers::Mixed(MAX_SLOTS + 1), 1).is_none());
        let none = Registers::Separate {
            data: 4,
            instruction: 0,
        };
        assert!(Geometry::new(1, none, 1).is_none());
    }

    #[test]
    fn memory_is_linear_in_tasks_and_cpus() {
        let words = |cpus, tasks: u32| {
            let geometry = Geometry::new(cpus, Registers::Mixed(4), tasks * 4);
            geometry.expect("sane").words()
        };
        assert!(words(256, 4_000) < 16 * 4_000 * 2 + 256 * 300);
        let more = words(256, 40_000) - words(256, 4_000);
        assert!(more < 36_000 * 4 * 8, "{more}");
    }

    #[test]
    fn one_cpu_has_one_shard() {
        let geometry = Geometry::new(1, Registers::Mixed(4), 100).expect("sane");
        assert_eq!(geometry.with_shards(64).shards, 1);
    }
}
