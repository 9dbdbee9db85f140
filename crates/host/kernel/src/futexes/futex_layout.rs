//! `bpf/futex_layout.h` in Rust.

use tiptoe_event::{HISTOGRAM_BUCKETS, Histogram};
use zerocopy::{FromBytes, IntoBytes, transmute};

use crate::name::name_of;
use crate::programs::{Cpu, histogram};

pub(super) type FutexKeyWords = [u64; size_of::<FutexKey>() / 8];
pub(super) type FutexRowWords = [u64; size_of::<FutexCounts>() / 8];
pub(super) type FutexCpuWords = [u64; size_of::<Cpu<FutexOwn>>() / 8];
pub(super) type FutexThreadWords = [u64; size_of::<FutexThread>() / 8];
const _: () = assert!(size_of::<FutexKey>() == 32 && size_of::<FutexCounts>() == 1672);
const _: () = assert!(size_of::<Waker>() == 24 && size_of::<FutexThread>() == 64);

/// A row's key: `struct tiptoe_futex_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct FutexKey {
    /// The futex.
    pub address: u64,
    /// The call site in the code that called libc.
    pub site: u64,
    /// The address in libc's outermost function, and the futex operation, as in `tiptoe_wire::futex::entry::VIA`.
    pub via: u64,
    /// The thread; 0 unless rows are by thread.
    pub thread: u64,
}

/// A call site that ended waits: `struct tiptoe_waker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct Waker {
    /// The call site.
    pub site: u64,
    /// The number of waits that the site ended.
    pub count: u64,
    /// The time of these waits.
    pub total_ns: u64,
}

/// Calls by how they ended, in the order of `enum end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes)]
#[repr(C)]
pub struct FutexEnds {
    /// Calls ended by another thread's wake.
    pub woken: u64,
    /// Calls that returned at once, because the word had changed.
    pub at_once: u64,
    /// Calls that timed out.
    pub timed_out: u64,
    /// Calls ended or restarted by a signal.
    pub interrupted: u64,
    /// Calls that failed.
    pub other: u64,
}

/// A row: `struct tiptoe_futex_row`.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct FutexCounts {
    /// The calls, by how they ended.
    pub ends: FutexEnds,
    /// Lock calls that had to wait. A lock call may make several futex calls.
    pub episodes: u64,
    /// The time of calls that did not return at once.
    pub slept_ns: u64,
    /// The longest time of a call.
    pub longest_ns: u64,
    zero_count: u64,
    comm: [u8; 16],
    wakers: [Waker; 10],
    buckets: [u32; HISTOGRAM_BUCKETS],
}

impl FutexCounts {
    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        let ends: [u64; 5] = transmute!(self.ends);
        ends.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the histogram of times.
    pub fn times(&self) -> Histogram {
        histogram(self.zero_count, &self.buckets)
    }

    /// Returns the waking call sites.
    pub fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.wakers.iter().filter(|waker| waker.site != 0)
    }

    /// Returns the thread's name at its first wait.
    pub fn name(&self) -> String {
        name_of(&self.comm)
    }
}

#[derive(FromBytes)]
#[repr(C)]
pub(super) struct FutexThread {
    since: u64,
    address: u64,
    site: u64,
    via: u64,
    first: u64,
    episode_address: u64,
    episode_site: u64,
    episode_frame: u64,
}

#[derive(FromBytes)]
#[repr(C)]
pub(super) struct FutexOwn {
    pub(super) waits: u64,
    pub(super) wakes: u64,
    row: FutexCounts,
}

pub(super) fn cpu(cpu: FutexCpuWords) -> Cpu<FutexOwn> {
    transmute!(cpu)
}

pub(super) fn runs(words: FutexCpuWords) -> [u64; 2] {
    let cpu = cpu(words);
    [cpu.runs, cpu.run_ns]
}

pub(super) fn decode_wait(tid: u32, thread: FutexThreadWords) -> Option<(FutexKey, u64)> {
    let thread: FutexThread = transmute!(thread);
    let key = FutexKey {
        address: thread.address,
        site: thread.site,
        via: thread.via,
        thread: tid.into(),
    };
    (thread.since != 0).then_some((key, thread.since))
}

/// What was not counted, in the order of `enum drop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct FutexDrops {
    /// Waits whose thread found no room in the map.
    pub no_room_for_thread: u64,
    /// Waits without room for a row.
    pub no_room_for_row: u64,
    /// Waits whose end was not reported.
    pub no_end: u64,
    /// Waits that ended before they began, by the clock.
    pub negative: u64,
    /// Calls while another call was counted on the same CPU.
    pub nested: u64,
    /// Waits that ended with their thread.
    pub ended_inside: u64,
    /// Calls of futex_waitv, and of system calls that Linux 6.7 added.
    pub other_calls: u64,
    /// Calls for which the kernel ran no program.
    pub missed: u64,
}

#[cfg(test)]
mod tests {
    use super::super::FUTEX;
    use super::*;
    use crate::layout_tests::same_layout;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut words: FutexRowWords = [0; _];
        for (word, value) in words.iter_mut().zip(1..=8) {
            *word = value;
        }
        words[9] = u64::from_ne_bytes(*b"redis\0\0\0");
        words[11 + 3..][..3].copy_from_slice(&[0x40, 2, 30]);
        words[11 + 30 + 4] = 2 << 32 | 5;
        let read: FutexCounts = transmute!(words);
        let ends = [
            read.ends.woken,
            read.ends.at_once,
            read.ends.timed_out,
            read.ends.interrupted,
        ];
        assert_eq!((read.calls(), ends, read.ends.other), (15, [1, 2, 3, 4], 5));
        let sums = [read.episodes, read.slept_ns, read.longest_ns];
        assert_eq!((sums, &*read.name()), ([6, 7, 8], "redis"));
        assert_eq!(read.times().counts()[8..10], [5, 2]);
        let ended = Waker {
            site: 0x40,
            count: 2,
            total_ns: 30,
        };
        assert_eq!(Vec::from_iter(read.wakers()), [&ended]);
    }

    #[test]
    fn the_programs_have_the_same_layout() {
        same_layout!(FUTEX, "tiptoe_futex_key", FutexKey: address site via thread);
        same_layout!(FUTEX, "tiptoe_waker", Waker: site count total_ns);
        same_layout!(
            FUTEX, "tiptoe_futex_row", FutexCounts:
            ends episodes slept_ns longest_ns zero_count comm wakers buckets
        );
        same_layout!(
            FUTEX, "tiptoe_thread", FutexThread:
            since address site via first episode_address episode_site episode_frame
        );
        same_layout!(FUTEX, "own", FutexOwn: waits wakes row);
    }
}
