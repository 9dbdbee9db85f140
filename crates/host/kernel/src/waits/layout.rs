//! `bpf/layout.h` in Rust. The maps' types are arrays of words, because aya's `Pod` is unsafe to implement.

use tiptoe_event::{HISTOGRAM_BUCKETS, Histogram};
use zerocopy::{FromBytes, IntoBytes, transmute};

use crate::name::name_of;
use crate::programs::{Cpu, histogram};

pub(super) type WaitKeyWords = [u64; size_of::<RowKey>() / 8];
pub(super) type WaitRowWords = [u64; size_of::<WaitCounts>() / 8];
pub(super) type WaitCpuWords = [u64; size_of::<Cpu<WaitOwn>>() / 8];
pub(super) type WaitWords = [u64; size_of::<Wait>() / 8];
const _: () = assert!(size_of::<RowKey>() == 32 && size_of::<WaitCounts>() == 1392);
const _: () = assert!(size_of::<Wait>() == 32 && size_of::<WaitOwn>() == 4 * 40 + 1392);

// The flags of lock:contention_begin, then tiptoe's.
const SPIN: u32 = 1;
const READER: u32 = 2;
const WRITER: u32 = 4;
const RT: u32 = 8;
const PERCPU: u32 = 16;
const MUTEX: u32 = 32;
const MMAP: u32 = 1 << 8;
const FAILED: u32 = 1 << 9;
const DOWNGRADED: u32 = 1 << 10;
/// The thread holds the lock for writing: see `bpf/mmap_lock.bpf.c`.
const WROTE: u32 = 1 << 11;

/// Flags of a lock and a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, FromBytes)]
#[repr(transparent)]
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
    /// The thread did not get the lock: a signal or timeout ended the wait, or the thread only tried.
    Failed,
    /// The thread did not wait: it made its write lock a read lock.
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

    /// Returns whether the lock is the process's own mmap_lock.
    pub fn is_mmap_lock(self) -> bool {
        self.0 & MMAP != 0
    }
}

/// A row's key: `struct tiptoe_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct RowKey {
    /// The lock; 0 unless rows are by lock.
    pub lock: u64,
    /// The version 2 cgroup.
    pub cgroup: u64,
    /// The process; 0 on an idle CPU.
    pub tgid: u32,
    /// The thread; 0 unless rows are by thread.
    pub tid: u32,
    /// The stack's number; negative if no stack was stored.
    pub stack: i32,
    /// The lock's type, mode and outcome.
    pub traits: Traits,
}

/// A row: `struct tiptoe_row`.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct WaitCounts {
    /// The number of waits.
    pub count: u64,
    /// The sum of the waits' times.
    pub total_ns: u64,
    /// The longest wait.
    pub max_ns: u64,
    /// Waits of 0 ns.
    pub zero_count: u64,
    /// The process's name, or the thread's if rows are by thread.
    pub comm: [u8; 16],
    /// Waits above 0 ns, by time.
    pub buckets: [u32; HISTOGRAM_BUCKETS],
}

impl WaitCounts {
    /// Returns the histogram of times.
    pub fn times(&self) -> Histogram {
        histogram(self.zero_count, &self.buckets)
    }

    /// Returns the name.
    pub fn name(&self) -> String {
        name_of(&self.comm)
    }
}

#[derive(FromBytes)]
#[repr(C)]
pub(super) struct Wait {
    start_ns: u64,
    cgroup: u64,
    stack: i32,
    traits: u32,
    own_ns: u64,
}

#[derive(FromBytes)]
#[repr(C)]
pub(super) struct WaitOwn {
    slots: [[u64; 5]; 4],
    row: WaitCounts,
}

pub(super) fn waited(row: WaitRowWords) -> WaitCounts {
    transmute!(row)
}

pub(super) fn runs(cpu: WaitCpuWords) -> [u64; 2] {
    let cpu: Cpu<WaitOwn> = transmute!(cpu);
    [cpu.runs, cpu.run_ns]
}

pub(super) fn is_waiting(wait: WaitWords) -> bool {
    let wait: Wait = transmute!(wait);
    wait.traits & WROTE == 0
}

/// What was not counted, or without its stack, in the order of `enum drop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes)]
#[repr(C)]
pub struct WaitDrops {
    /// Waits without room, because too many threads waited.
    pub no_room_to_wait: u64,
    /// Waits without room for a row.
    pub no_room_for_row: u64,
    /// Ends of waits that began before counting.
    pub no_begin: u64,
    /// Waits whose end was not reported.
    pub no_end: u64,
    /// Waits that ended before they began, by the clock.
    pub negative: u64,
    /// Events that interrupted the counting of another event on the same CPU.
    pub nested: u64,
    /// Waits that were counted without their stack.
    pub no_stack: u64,
    /// Begins and ends for which the kernel ran no program.
    pub missed: u64,
}

impl WaitDrops {
    /// Returns the sum of what was not counted.
    pub fn total(&self) -> u64 {
        let all: [u64; size_of::<Self>() / 8] = transmute!(*self);
        all.iter().sum::<u64>() - self.no_stack
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CONTENTION, MMAP_LOCK};
    use super::*;
    use crate::layout_tests::same_layout;

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
        let mut key: WaitKeyWords = [1, 2, 4 << 32 | 3, 0x104 << 32 | 7];
        let mut words: WaitRowWords = [0; _];
        words[..4].copy_from_slice(&[3, 70, 60, 1]);
        words[4] = u64::from_ne_bytes(*b"redis\0\0\0");
        words[6 + 4] = 2 << 32 | 5;
        let (read, waited): (RowKey, _) = (transmute!(key), waited(words));
        assert_eq!((waited.count, waited.total_ns, waited.max_ns), (3, 70, 60));
        assert_eq!((waited.times().zero_count, &*waited.name()), (1, "redis"));
        assert_eq!(waited.times().counts()[8..10], [5, 2]);
        assert_eq!(waited.times().total(), 8);
        assert_eq!((read.lock, read.cgroup, read.tgid, read.tid), (1, 2, 3, 4));
        assert!(read.traits.is_mmap_lock());
        assert_eq!(read.stack, 7);
        key[3] = u64::MAX;
        let read: RowKey = transmute!(key);
        assert_eq!(read.stack, -1);
    }

    #[test]
    fn the_programs_have_the_same_layout() {
        for object in [CONTENTION, MMAP_LOCK] {
            same_layout!(object, "tiptoe_key", RowKey: lock cgroup tgid tid stack traits);
            same_layout!(
                object, "tiptoe_row", WaitCounts:
                count total_ns max_ns zero_count comm buckets
            );
            same_layout!(object, "tiptoe_wait", Wait: start_ns cgroup stack traits own_ns);
            same_layout!(object, "own", WaitOwn: slots row);
            same_layout!(object, "cpu", Cpu<WaitOwn>: busy runs run_ns entered_ns own);
        }
    }

    #[test]
    fn waits_without_a_call_site_are_not_drops() {
        let drops: WaitDrops = transmute!([1_u64, 2, 3, 4, 5, 6, 100, 7]);
        assert_eq!((drops.total(), drops.no_stack), (28, 100));
    }
}
