//! What the BPF programs write: `bpf/layout.h` in Rust.
//!
//! Keys and rows are arrays of words, so that their bytes need no unsafe reading.

use tiptoe_event::{HISTOGRAM_BUCKETS, Histogram};

use crate::programs::name_of;

/// A row's key: the lock, the cgroup, the thread above its process, the traits above the stack.
pub(super) type Key = [u64; 4];
/// A row: four counts, the name, and the buckets by twos.
pub(super) type Row = [u64; NAMED + 2 + HISTOGRAM_BUCKETS / 2];

/// What a CPU has: whether it is within a program, its runs and their time, the time that it entered one,
/// four slots, and a row.
pub(super) type Cpu = [u64; 4 + 4 * 5 + size_of::<Row>() / 8];

/// What a begin is noted with: `tiptoe_wait`.
pub(super) type Noted = [u64; 4];

/// The words in front of a row's name.
const NAMED: usize = 4;

// The flags of contention_begin, as the kernel defines them, and ours.
const SPIN: u32 = 1;
const READER: u32 = 2;
const WRITER: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;
const MMAP: u32 = 1 << 8;
const FAILED: u32 = 1 << 9;
const DOWNGRADED: u32 = 1 << 10;
/// A wait of a thread that has the lock: see `bpf/mmap_lock.bpf.c`.
const WROTE: u32 = 1 << 11;

/// What the kernel says of a lock and of a wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traits(u32);

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Beside other readers.
    Read,
    /// Alone, of a lock that has readers too.
    Write,
    /// Alone, as always with this type of lock.
    Exclusive,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// With the lock.
    Acquired,
    /// Without it: a signal came, time was over, or it was only tried.
    Failed,
    /// No wait: who had it for writing has it for reading now.
    Downgraded,
}

impl Traits {
    /// From the flags that the kernel and our programs say.
    pub fn new(flags: u32) -> Self {
        Self(flags)
    }

    /// The type of the lock, in one word.
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

    /// How it was asked for.
    pub fn mode(self) -> Mode {
        match (self.0 & READER != 0, self.0 & WRITER != 0) {
            (true, _) => Mode::Read,
            (_, true) => Mode::Write,
            _ => Mode::Exclusive,
        }
    }

    /// How the wait ended.
    pub fn outcome(self) -> Outcome {
        match (self.0 & FAILED != 0, self.0 & DOWNGRADED != 0) {
            (true, _) => Outcome::Failed,
            (_, true) => Outcome::Downgraded,
            _ => Outcome::Acquired,
        }
    }

    /// Whether it is the mmap_lock of the process that waits.
    pub fn is_mmap_lock(self) -> bool {
        self.0 & MMAP != 0
    }
}

/// Which waits are one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The lock's address; 0 where locks are not told apart.
    pub lock: u64,
    /// The id of the cgroup (version 2).
    pub cgroup: u64,
    /// The process; 0 is a CPU that had nothing to do.
    pub pid: u32,
    /// The thread; 0 where threads are not told apart.
    pub tid: u32,
    /// The lock's type, and how it was asked for and got.
    pub traits: Traits,
}

/// With the number of the stack; none where that could not be kept.
pub(super) fn key(words: Key) -> (RowKey, Option<u32>) {
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

/// What a row counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// How many waits.
    pub count: u64,
    /// How long they took together.
    pub total_ns: u64,
    /// How long the longest took.
    pub max_ns: u64,
    /// How long each took.
    pub times: Histogram,
    /// The name of the process; of the thread, where threads are told apart.
    pub comm: String,
}

pub(super) fn waited(row: &Row) -> Waited {
    let [count, total_ns, max_ns, zero_count, rest @ ..] = row;
    let (name, buckets) = rest.split_at(2);
    let halves = buckets
        .iter()
        .flat_map(|word| [word & 0xffff_ffff, word >> 32]);
    let mut times = Histogram::default();
    times.add_counts(*zero_count, &halves.collect::<Vec<_>>());
    Waited {
        count: *count,
        total_ns: *total_ns,
        max_ns: *max_ns,
        times,
        comm: name_of(name),
    }
}

/// How often a CPU ran the programs for those whose waits are wanted, and how long.
pub(super) fn runs(cpu: &Cpu) -> [u64; 2] {
    [cpu[1], cpu[2]]
}

/// Whether what a thread is noted with is a wait that is not over.
pub(super) fn is_waiting(wait: Noted) -> bool {
    (wait[2] >> 32) as u32 & WROTE == 0
}

/// What was seen and not counted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Waits for which there was no room: too many threads waited at once.
    pub no_room_to_wait: u64,
    /// Waits of a kind, process or place for which there was no row left.
    pub no_room_for_row: u64,
    /// Ends without a begin: of waits that had begun before the trace.
    pub no_begin: u64,
    /// Begins without an end.
    pub no_end: u64,
    /// Waits that ended before they began, by the clock.
    pub negative: u64,
    /// Begins and ends within the counting of another one, on the same CPU.
    pub nested: u64,
    /// Begins and ends for which the kernel did not run our programs.
    pub missed: u64,
    /// Not dropped, but counted without a call site: its stack could not be kept.
    pub no_stack: u64,
}

/// How many reasons the programs count.
pub(super) const REASONS: usize = 7;

impl Drops {
    /// All that was not counted.
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

pub(super) fn drops(counts: [u64; REASONS], missed: u64) -> Drops {
    let [
        no_room_to_wait,
        no_room_for_row,
        no_begin,
        no_end,
        negative,
        nested,
        no_stack,
    ] = counts;
    Drops {
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
        let mut row = [0; size_of::<Row>() / 8];
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
    fn what_has_no_call_site_is_counted() {
        let drops = drops([1, 2, 3, 4, 5, 6, 100], 7);
        assert_eq!((drops.total(), drops.no_stack), (28, 100));
    }
}
