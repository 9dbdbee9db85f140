//! `bpf/futex_layout.h` in Rust. Keys and rows are arrays of words, so that reading their bytes needs no unsafe code.

use tiptoe_event::{HISTOGRAM_BUCKETS, Histogram};

use crate::programs::name_of;

/// Address, call site, libc's last address with the operation, thread.
pub(super) type FutexKeyWords = [u64; 4];

/// Before the name: five ends, and four more.
const NUMBERS: usize = 9;
const WAKERS: usize = 10;
const WAKER_WORDS: usize = 3;

/// Numbers, name, wakers, and buckets, two in a word.
pub(super) type FutexRowWords = [u64; NUMBERS + 2 + WAKERS * WAKER_WORDS + HISTOGRAM_BUCKETS / 2];
/// A CPU's state: whether inside a program, runs, their time, when entered, waiting and waking calls, and a row.
pub(super) type FutexCpuWords = [u64; 4 + 2 + size_of::<FutexRowWords>() / 8];
pub(super) type Thread = [u64; 8];

/// Which waits share a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FutexKey {
    /// The futex.
    pub address: u64,
    /// The user's call site.
    pub site: u64,
    /// libc's last address and the operation, as in `tiptoe_wire::futex::entry::VIA`.
    pub via: u64,
    /// The thread; 0 if not grouped by it.
    pub tid: u32,
}

/// A call site that ended waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// The call site.
    pub site: u64,
    /// Its waits.
    pub count: u64,
    /// Their time.
    pub total_ns: u64,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FutexCounts {
    /// The key.
    pub key: FutexKey,
    /// All calls.
    pub calls: u64,
    /// Calls ended by another thread's wake.
    pub woken: u64,
    /// Calls that returned at once: the word had changed.
    pub at_once: u64,
    /// Calls that timed out.
    pub timed_out: u64,
    /// Calls ended or restarted by a signal.
    pub interrupted: u64,
    /// Calls that failed.
    pub other: u64,
    /// The user's contended calls; one may wait several times.
    pub episodes: u64,
    /// The time of calls that did not return at once.
    pub slept_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Their histogram.
    pub times: Box<Histogram>,
    /// Waking call sites.
    pub wakers: Vec<Waker>,
    /// The thread's name at its first wait.
    pub comm: String,
}

pub(super) fn decode_row(key: FutexKeyWords, row: &FutexRowWords) -> FutexCounts {
    let [address, site, via, thread] = key;
    let (numbers, rest) = row.split_at(NUMBERS);
    let (name, rest) = rest.split_at(2);
    let (wakers, buckets) = rest.split_at(WAKERS * WAKER_WORDS);
    let halves = buckets
        .iter()
        .flat_map(|word| [word & 0xffff_ffff, word >> 32]);
    let mut times = Box::<Histogram>::default();
    times.add_counts(numbers[8], &halves.collect::<Vec<_>>());
    let wakers = wakers
        .chunks_exact(WAKER_WORDS)
        .filter(|words| words[0] != 0);
    FutexCounts {
        key: FutexKey {
            address,
            site,
            via,
            tid: thread as u32,
        },
        calls: numbers[..5]
            .iter()
            .fold(0, |sum, more| sum.saturating_add(*more)),
        woken: numbers[0],
        at_once: numbers[1],
        timed_out: numbers[2],
        interrupted: numbers[3],
        other: numbers[4],
        episodes: numbers[5],
        slept_ns: numbers[6],
        longest_ns: numbers[7],
        times,
        wakers: wakers
            .map(|words| Waker {
                site: words[0],
                count: words[1],
                total_ns: words[2],
            })
            .collect(),
        comm: name_of(name),
    }
}

/// Returns a CPU's runs for the process, and their time.
pub(super) fn runs(cpu: &FutexCpuWords) -> [u64; 2] {
    [cpu[1], cpu[2]]
}

pub(super) fn calls(cpu: &FutexCpuWords) -> [u64; 2] {
    [cpu[4], cpu[5]]
}

/// Returns a thread's wait and its begin.
pub(super) fn decode_wait(tid: u32, thread: &Thread) -> Option<(FutexKey, u64)> {
    let [since, address, site, via, ..] = *thread;
    let key = FutexKey {
        address,
        site,
        via,
        tid,
    };
    (since != 0).then_some((key, since))
}

/// What was not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FutexDrops {
    /// Waits without room for their thread.
    pub no_room_for_thread: u64,
    /// Waits without room for a row.
    pub no_room_for_row: u64,
    /// Waits without an end.
    pub no_end: u64,
    /// Waits that ended before they began, by the clock.
    pub negative: u64,
    /// Calls during another's counting on the same CPU.
    pub nested: u64,
    /// Calls for which the kernel ran no program.
    pub missed: u64,
    /// Waits that their threads' exit ended.
    pub ended_inside: u64,
    /// futex_waitv, and calls new in Linux 6.7.
    pub other_calls: u64,
}

pub(super) const REASONS: usize = 7;

pub(super) fn drops(counts: [u64; REASONS], missed: u64) -> FutexDrops {
    let [
        no_room_for_thread,
        no_room_for_row,
        no_end,
        negative,
        nested,
        ended_inside,
        other_calls,
    ] = counts;
    FutexDrops {
        no_room_for_thread,
        no_room_for_row,
        no_end,
        negative,
        nested,
        missed,
        ended_inside,
        other_calls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut words: FutexRowWords = [0; size_of::<FutexRowWords>() / 8];
        for (word, value) in words.iter_mut().zip(1..=8) {
            *word = value;
        }
        words[NUMBERS] = u64::from_ne_bytes(*b"redis\0\0\0");
        words[NUMBERS + 2 + WAKER_WORDS..][..WAKER_WORDS].copy_from_slice(&[0x40, 2, 30]);
        words[NUMBERS + 2 + WAKERS * WAKER_WORDS + 4] = 2 << 32 | 5;
        let read = decode_row([1, 2, 3, 4], &words);
        let FutexKey {
            address,
            site,
            via,
            tid,
        } = read.key;
        assert_eq!((address, site, via, tid), (1, 2, 3, 4));
        let ends = [read.woken, read.at_once, read.timed_out, read.interrupted];
        assert_eq!((read.calls, ends, read.other), (15, [1, 2, 3, 4], 5));
        let sums = [read.episodes, read.slept_ns, read.longest_ns];
        assert_eq!((sums, &*read.comm), ([6, 7, 8], "redis"));
        assert_eq!(read.times.counts()[8..10], [5, 2]);
        let ended = Waker {
            site: 0x40,
            count: 2,
            total_ns: 30,
        };
        assert_eq!(read.wakers, [ended]);
    }
}
