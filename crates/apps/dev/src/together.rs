//! Runs the same work in several threads at once, each on one CPU, and measures it by the wall clock.
//!
//! A rate is the work of all threads, divided by the time from the first start to the last end. Rates by CPU time would
//! be too high, because CPU time excludes waits for locks and for CPUs.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Returns the number of CPUs that this process may use, or fewer if its cgroup has a quota.
pub(crate) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

pub(crate) fn allowed() -> Vec<usize> {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let cpus = 0..CpuSet::MAX_CPU;
    cpus.filter(|&cpu| allowed.is_set(cpu)).collect()
}

pub(crate) fn stay_on(cpu: usize) {
    let mut there = CpuSet::new();
    there.set(cpu);
    // If this fails, two threads may share a CPU, and rates are lower.
    let _ = sched_setaffinity(None, &there);
}

pub(crate) fn pin_to_own_cpu(thread: u32) {
    let allowed = allowed();
    if let Some(turn) = (thread as usize).checked_rem(allowed.len()) {
        stay_on(allowed[turn]);
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadShare {
    pub(crate) done: u64,
    start: Instant,
    end: Instant,
    cpu: Duration,
    queued: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    pub(crate) done: u64,
    wall: Duration,
    lived: Duration,
    cpu: Duration,
    queued: Duration,
}

impl Work {
    fn of(shares: &[ThreadShare]) -> Work {
        let start = shares.iter().map(|share| share.start).min();
        let end = shares.iter().map(|share| share.end).max();
        let wall = start.zip(end).map(|(start, end)| end - start);
        let sum = |part: fn(&ThreadShare) -> Duration| shares.iter().map(part).sum();
        Work {
            done: shares.iter().map(|share| share.done).sum(),
            wall: wall.unwrap_or_default(),
            lived: sum(|share| share.end - share.start),
            cpu: sum(|share| share.cpu),
            queued: sum(|share| share.queued),
        }
    }

    pub(crate) fn per_s(&self) -> f64 {
        self.done as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn ns_each(&self) -> f64 {
        self.lived_ns() / self.done.max(1) as f64
    }

    pub(crate) fn cpu_ns_each(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.done.max(1) as f64
    }

    pub(crate) fn lived_ns(&self) -> f64 {
        self.lived.as_nanos() as f64
    }

    /// Returns the part of the threads' time in which they slept. A thread that is ready but has no CPU does not sleep.
    pub(crate) fn asleep(&self) -> f64 {
        let awake = self.cpu + self.queued;
        self.lived.saturating_sub(awake).as_nanos() as f64 / self.lived_ns().max(1.0)
    }
}

pub(crate) struct Gate {
    start: Barrier,
    is_over: OwnLines<AtomicBool>,
}

/// Data in cache lines of its own, because stores to other data in the same lines would slow down some cases.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct OwnLines<A>(pub(crate) A);

impl Gate {
    /// Repeats `batch`, which returns the number of its operations. Each thread must call this exactly once, because
    /// the start waits for all threads.
    pub(crate) fn repeat(&self, mut batch: impl FnMut() -> u64) -> ThreadShare {
        self.start.wait();
        let (cpu, queued, start) = (cpu_time(), queued(), Instant::now());
        let mut done = 0;
        while !self.is_over.0.load(Relaxed) {
            done += batch();
        }
        ThreadShare {
            done,
            start,
            end: Instant::now(),
            cpu: cpu_time().saturating_sub(cpu),
            queued: self::queued().saturating_sub(queued),
        }
    }
}

/// Runs `each`, with the thread's number, in `threads` pinned threads, and `during` in the calling thread. All threads
/// work until `during` returns. Returns the work, and each thread's second result.
pub(crate) fn together<A: Send>(
    threads: u32,
    during: impl FnOnce(),
    each: impl Fn(u32, &Gate) -> (ThreadShare, A) + Sync,
) -> (Work, Vec<A>) {
    let gate = Gate {
        start: Barrier::new(threads as usize + 1),
        is_over: OwnLines::default(),
    };
    let joined = std::thread::scope(|scope| {
        let (gate, each) = (&gate, &each);
        let run = |thread| {
            scope.spawn(move || {
                pin_to_own_cpu(thread);
                each(thread, gate)
            })
        };
        let started: Vec<_> = (0..threads).map(run).collect();
        gate.start.wait();
        during();
        gate.is_over.0.store(true, Relaxed); // Relaxed: only ends the loops
        let joined = started.into_iter().map(|thread| thread.join());
        joined.flatten().collect::<Vec<_>>()
    });
    let (shares, others): (Vec<_>, Vec<_>) = joined.into_iter().unzip();
    (Work::of(&shares), others)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns how long the calling thread was ready but had no CPU, if known.
fn queued() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat");
    let text = text.unwrap_or_default();
    let ns = text
        .split_whitespace()
        .nth(1)
        .and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn share(start: Instant, cpu: Duration, queued: Duration) -> ThreadShare {
        ThreadShare {
            done: 100,
            start,
            end: start + SECOND,
            cpu,
            queued,
        }
    }

    #[test]
    fn threads_that_take_turns_have_the_rate_of_one() {
        let now = Instant::now();
        let turns = [now, now + SECOND].map(|start| share(start, SECOND, Duration::ZERO));
        assert_eq!(Work::of(&turns).per_s(), 100.0);
        let shared = [now, now].map(|start| share(start, SECOND / 2, SECOND / 2));
        let shared = Work::of(&shared);
        assert_eq!((shared.per_s(), shared.ns_each()), (200.0, 1e7));
        assert_eq!((shared.cpu_ns_each(), shared.asleep()), (5e6, 0.0));
    }

    #[test]
    fn time_asleep_is_neither_run_nor_queued() {
        let now = Instant::now();
        let work = Work::of(&[
            share(now, SECOND / 2, SECOND / 4),
            share(now, SECOND, Duration::ZERO),
        ]);
        assert_eq!(work.asleep(), 0.125);
        assert_eq!(Work::of(&[]), Work::default());
    }

    #[test]
    fn each_thread_stays_on_one_cpu() {
        let seen = |thread, gate: &Gate| {
            let share = gate.repeat(|| 1);
            (share, (thread, allowed()))
        };
        let (_, mut seen) = together(4, || (), seen);
        seen.sort();
        let all = allowed();
        for (thread, cpus) in &seen {
            assert_eq!(cpus[..], [all[*thread as usize % all.len()]]);
        }
        assert_eq!(seen.len(), 4);
    }
}
