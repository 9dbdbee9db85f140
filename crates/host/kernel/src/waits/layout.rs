//! `bpf/layout.h` in Rust. Keys and rows are arrays of words, so that reading their bytes needs no unsafe code.

use tiptoe_event::{HISTOGRAM_BUCKETS, Histogram};

use crate::programs::name_of;

/// Lock; cgroup; thread (high half) and process; traits (high half) and stack.
pub(super) type WaitKeyWords = [u64; 4];
/// Four counts, name, and buckets, two in a word.
pub(super) type WaitRowWords = [u64; NAMED + 2 + HISTOGRAM_BUCKETS / 2];

/// A CPU's state: whether inside a program, runs, their time, when entered, four slots, and a row.
pub(super) type WaitCpuWords = [u64; 4 + 4 * 5 + size_of::<WaitRowWords>() / 8];

pub(super) type WaitWords = [u64; 4];

const NAMED: usize = 4;

// contention_begin's flags, and ours.
const SPIN: u32 = 1;
const READER: u32 = 2;
const WRITER: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;
const MMAP: u32 = 1 << 8;
const FAILED: u32 = 1 << 9;
const DOWNGRADED: u32 = 1 << 10;
/// The waiting thread has the lock: see `bpf/mmap_lock.bpf.c`.
const WROTE: u32 = 1 << 11;

/// Flags of a lock and a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traits(u32);

/// The requested mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Alone, for a lock that also has readers.
    Write,
    /// Alone: the lock has no other mode.
    Exclusive,
}

/// A wait's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// The thread got the lock.
    Acquired,
    /// Not acquired: a signal, a timeout, or only a try.
    Failed,
    /// No wait: a writer became a reader.
    Downgraded,
}

impl Traits {
    /// Returns the traits of these flags.
    pub fn new(flags: u32) -> Self {
        Self(flags)
    }

    /// Returns the lock's type.
    pub fn kind(self) -> &'static str {
        match self.0 & (SPIN | READER | WRITER | RT | PERCPU | MUTEX | MMAP) {
            flags if flags & MMAP != 0 => "mmap_lock",
            flags if flags & (PERCPU | RT) == PERCPU | RT => "rt-percpu-rwsem",
            flags if flags & PERCPU != 0 => "percpu-rwsem",
            flags if flags & (MUTEX | RT) == MUTEX | RT => "rt-mutex",
            flags if flags & MUTEX != 0 => "mutex",
            flags => match (flags & RT != 0, flags & SPIN != 0, self.mode()) {
                (false, true, Mode::Exclusive) => "spinlock",
                (true, true, Mode::Exclusive) => "rt-spinlock",
                (false, true, _) => "rwlock",
                (true, true, _) => "rt-rwlock",
                (false, false, Mode::Exclusive) => "semaphore",
                (true, false, Mode::Exclusive) => "rt-mutex",
                (false, false, _) => "rwsem",
                (true, false, _) => "rt-rwsem",
            },
        }
    }

    /// Returns the requested mode.
    pub fn mode(self) -> Mode {
        match (self.0 & READER != 0, self.0 & WRITER != 0) {
            (true, _) => Mode::Read,
            (_, true) => Mode::Write,
            _ => Mode::Exclusive,
        }
    }

    /// Returns the outcome.
    pub fn outcome(self) -> Outcome {
        match (self.0 & FAILED != 0, self.0 & DOWNGRADED != 0) {
            (true, _) => Outcome::Failed,
            (_, true) => Outcome::Downgraded,
            _ => Outcome::Acquired,
        }
    }

    /// Returns whether it is the process's own mmap_lock.
    pub fn is_mmap_lock(self) -> bool {
        self.0 & MMAP != 0
    }
}

/// Which waits share a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The lock; 0 if not grouped by it.
    pub lock: u64,
    /// The version 2 cgroup.
    pub cgroup: u64,
    /// The process; 0 on an idle CPU.
    pub pid: u32,
    /// The thread; 0 if not grouped by it.
    pub tid: u32,
    /// The lock's type, mode and outcome.
    pub traits: Traits,
}

/// Decodes a key and its stack's number, if stored.
pub(super) fn key(words: WaitKeyWords) -> (RowKey, Option<u32>) {
    let [lock, cgroup, ids, rest] = words;
    let key = RowKey {
        lock,
        cgroup,
        pid: ids as u32,
        tid: (ids >> 32) as u32,
        traits: Traits::new((rest >> 32) as u32),
    };
    let stack = rest as u32;
    (key, (stack.cast_signed() >= 0).then_some(stack))
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitCounts {
    /// The number of waits.
    pub count: u64,
    /// The sum of their times.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Their histogram.
    pub times: Histogram,
    /// The process's name, or the thread's if grouped by it.
    pub comm: String,
}

pub(super) fn waited(row: &WaitRowWords) -> WaitCounts {
    let [count, total_ns, max_ns, zero_count, rest @ ..] = row;
    let (name, buckets) = rest.split_at(2);
    let halves = buckets
        .iter()
        .flat_map(|word| [word & 0xffff_ffff, word >> 32]);
    let mut times = Histogram::default();
    times.add_counts(*zero_count, &halves.collect::<Vec<_>>());
    WaitCounts {
        count: *count,
        total_ns: *total_ns,
        max_ns: *max_ns,
        times,
        comm: name_of(name),
    }
}

/// Returns a CPU's runs for the wanted processes, and their time.
pub(super) fn runs(cpu: &WaitCpuWords) -> [u64; 2] {
    [cpu[1], cpu[2]]
}

pub(super) fn is_waiting(wait: WaitWords) -> bool {
    (wait[2] >> 32) as u32 & WROTE == 0
}

/// What was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitDrops {
    /// Waits without room, because too many threads waited.
    pub no_room_to_wait: u64,
    /// Waits without room for a row.
    pub no_room_for_row: u64,
    /// Ends of waits older than the trace.
    pub no_begin: u64,
    /// Begins without an end.
    pub no_end: u64,
    /// Waits that ended before they began, by the clock.
    pub negative: u64,
    /// Begins and ends during another's counting on the same CPU.
    pub nested: u64,
    /// Begins and ends for which the kernel ran no program.
    pub missed: u64,
    /// Counted, but the stack was not stored.
    pub no_stack: u64,
}

pub(super) const REASONS: usize = 7;

impl WaitDrops {
    /// Returns the sum of what was not counted.
    pub fn total(&self) -> u64 {
        let Self {
            no_stack: _,
            no_room_to_wait,
            no_room_for_row,
            no_begin,
            no_end,
            negative,
            nested,
            missed,
        } = *self;
        let dropped = [no_room_to_wait, no_room_for_row, no_begin, no_end];
        let more = [negative, nested, missed];
        dropped.into_iter().chain(more).sum()
    }
}

pub(super) fn drops(counts: [u64; REASONS], missed: u64) -> WaitDrops {
    let [
        no_room_to_wait,
        no_room_for_row,
        no_begin,
        no_end,
        negative,
        nested,
        no_stack,
    ] = counts;
    WaitDrops {
        no_room_to_wait,
        no_room_for_row,
        no_begin,
        no_end,
        negative,
        nested,
        missed,
        no_stack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_types_and_modes() {
        use Mode::{Exclusive, Read, Write};
        for (flags, kind, mode) in [
            (0, "semaphore", Exclusive),
            (SPIN, "spinlock", Exclusive),
            (SPIN | READER, "rwlock", Read),
            (SPIN | WRITER, "rwlock", Write),
            (READER, "rwsem", Read),
            (WRITER, "rwsem", Write),
            (WRITER | MMAP, "mmap_lock", Write),
            (PERCPU | READER, "percpu-rwsem", Read),
            (MUTEX, "mutex", Exclusive),
            (MUTEX | SPIN, "mutex", Exclusive),
            (RT, "rt-mutex", Exclusive),
            (RT | SPIN, "rt-spinlock", Exclusive),
            (RT | SPIN | READER, "rt-rwlock", Read),
            (RT | WRITER, "rt-rwsem", Write),
        ] {
            let traits = Traits(flags | FAILED);
            assert_eq!((traits.kind(), traits.mode()), (kind, mode), "{flags:#x}");
            assert_eq!(traits.outcome(), Outcome::Failed);
        }
        assert_eq!(Traits(READER | DOWNGRADED).outcome(), Outcome::Downgraded);
        assert_eq!(Traits(READER).outcome(), Outcome::Acquired);
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut row = [0; size_of::<WaitRowWords>() / 8];
        row[..4].copy_from_slice(&[3, 70, 60, 1]);
        row[4] = u64::from_ne_bytes(*b"redis\0\0\0");
        row[6 + 4] = 2 << 32 | 5;
        let waited = waited(&row);
        assert_eq!((waited.count, waited.total_ns, waited.max_ns), (3, 70, 60));
        assert_eq!((waited.times.zero_count, &*waited.comm), (1, "redis"));
        assert_eq!(waited.times.counts()[8..10], [5, 2]);
        assert_eq!(waited.times.total(), 8);
    }

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let (read, stack) = key([1, 2, 4 << 32 | 3, 0x104 << 32 | 0xffff_ffff]);
        assert_eq!((read.lock, read.cgroup, read.pid, read.tid), (1, 2, 3, 4));
        assert_eq!(stack, None);
        assert!(read.traits.is_mmap_lock());
        assert_eq!(key([0, 0, 0, 7]).1, Some(7));
    }

    #[test]
    fn waits_without_a_call_site_are_not_drops() {
        let drops = drops([1, 2, 3, 4, 5, 6, 100], 7);
        assert_eq!((drops.total(), drops.no_stack), (28, 100));
    }
}
