//! Locks of programs that link `tiptoe-lock`: the time of a lock and unlock, compared with parking_lot's and std's
//! locks, and the throughput of threads that contend for one lock.
//!
//! `wrapped` has the instructions of the bare lock, `waits` keeps a histogram of waits, and `order` checks the order
//! in which locks are taken. In `pair_within` the thread holds another lock.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, PoisonError};
use std::thread::scope;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tiptoe_lock::lock_api::{self, RawMutex};
use tiptoe_lock::{Contended, Nothing, Order, Waits};

use crate::error::Error;
use crate::options::{Options, up_to};
use crate::table::{Table, TableRow, median_and_spread};
use crate::together::{OwnLines, pin_to_own_cpu};
use crate::turns::{CaseResults, in_turns, ratio};

type Bare = lock_api::Mutex<parking_lot::RawMutex, u64>;
type With<H> = lock_api::Mutex<Contended<parking_lot::RawMutex, H>, u64>;

/// The lock-unlock pairs between two readings of the clock.
const PAIRS: u32 = 1_000;
/// The steps of [`work`] in a section, which takes about 150 ns.
const STEPS: u64 = 260;
/// The fewest threads of the largest row, even if `-t` or the number of CPUs is smaller.
const FEWEST: u32 = 8;
const BARE: &str = "parking_lot";

trait Mutex: Default + Sync {
    fn with<A>(&self, section: impl FnOnce(&mut u64) -> A) -> A;
}

impl<R: RawMutex + Sync> Mutex for lock_api::Mutex<R, u64> {
    #[inline(always)]
    fn with<A>(&self, section: impl FnOnce(&mut u64) -> A) -> A {
        section(&mut self.lock())
    }
}

impl Mutex for std::sync::Mutex<u64> {
    #[inline(always)]
    fn with<A>(&self, section: impl FnOnce(&mut u64) -> A) -> A {
        section(&mut self.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type LinkedCase<M> = (&'static str, M);
type Alone = fn(Duration) -> f64;
type Together = fn(u32, Duration) -> f64;

const ALONE: [LinkedCase<Alone>; 5] = [
    (BARE, pair::<Bare>),
    ("wrapped", pair::<With<Nothing>>),
    ("waits", pair::<With<Waits>>),
    ("std", pair::<std::sync::Mutex<u64>>),
    ("order", pair::<With<Order>>),
];
const WITHIN: [LinkedCase<Alone>; 3] = [
    (BARE, pair_within::<Bare>),
    ("waits", pair_within::<With<Waits>>),
    ("order", pair_within::<With<Order>>),
];
const CONTENDED: [LinkedCase<Together>; 4] = [
    (BARE, contend::<Bare>),
    ("wrapped", contend::<With<Nothing>>),
    ("waits", contend::<With<Waits>>),
    ("std", contend::<std::sync::Mutex<u64>>),
];

pub(super) fn run(options: &Options, table: &mut Table) -> Result<(), Error> {
    let time = Duration::from_millis(options.ms.into());
    for (site, cases) in [("pair", &ALONE[..]), ("pair_within", &WITHIN[..])] {
        let found = measure(cases, options, table, |case| case(time))?;
        for (name, times) in &found.cases {
            table.rows.push(TableRow::new(*name, times, "ns").at(site));
        }
        compare(&found, |name, bare, times| {
            let more: Vec<f64> = times.iter().zip(bare).map(|(a, b)| a - b).collect();
            let (more, spread) = median_and_spread(&more);
            let note = format!("{site}: {name} takes {more:+.2} ns more (± {spread:.2})");
            table.notes.push(note);
        });
    }
    for threads in contenders(options) {
        // Several threads take longer to reach a steady speed.
        let found = measure(&CONTENDED, options, table, |case| case(threads, 10 * time))?;
        for (name, times) in &found.cases {
            let row = TableRow::new(*name, times, "ns").at("contended");
            table.rows.push(row.of_threads(threads));
        }
        compare(&found, |name, bare, times| {
            let (part, spread) = ratio(bare, times);
            let (part, spread) = (100.0 * part, 100.0 * spread);
            table.notes.push(format!(
                "contended by {threads}: {name} has {part:.1} % of {BARE}'s throughput (± {spread:.1})"
            ));
        });
    }
    Ok(())
}

fn contenders(options: &Options) -> impl Iterator<Item = u32> {
    let most = options.most_threads().max(FEWEST);
    up_to(most).into_iter().filter(|&threads| threads > 1)
}

fn measure<M: Copy>(
    cases: &[LinkedCase<M>],
    options: &Options,
    table: &mut Table,
    measure: impl Fn(M) -> f64,
) -> Result<CaseResults<&'static str>, Error> {
    let names: Vec<&'static str> = cases.iter().map(|(name, _)| *name).collect();
    let case = |name| cases.iter().find(|(other, _)| *other == name);
    in_turns(options.rounds, &names, str::to_owned, table, |name| {
        let (_, how) = case(name).ok_or(Error::Missing)?;
        Ok(measure(*how))
    })
}

fn compare(found: &CaseResults<&'static str>, mut report: impl FnMut(&str, &[f64], &[f64])) {
    let mut cases = found.cases.iter();
    let Some((_, bare)) = cases.next() else {
        return;
    };
    cases.for_each(|(name, times)| report(name, bare, times));
}

fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns the CPU time of a lock and unlock, in ns.
fn pair<M: Mutex>(time: Duration) -> f64 {
    // The lock is aligned, because the stack's address is random, and a lock that spans two cache lines is slower.
    let lock = OwnLines::<M>::default();
    let (begin, mut pairs) = (thread_ns(), 0.0);
    loop {
        for _ in 0..PAIRS {
            black_box(&lock.0).with(|sum| *sum += 1);
        }
        pairs += f64::from(PAIRS);
        let ns = thread_ns() - begin;
        if u128::from(ns) >= time.as_nanos() {
            return ns as f64 / pairs;
        }
    }
}

fn pair_within<M: Mutex>(time: Duration) -> f64 {
    OwnLines::<M>::default().0.with(|_| pair::<M>(time))
}

fn contend<M: Mutex>(threads: u32, time: Duration) -> f64 {
    let (lock, over) = (OwnLines::<M>::default(), OwnLines(AtomicBool::new(false)));
    let ready = Barrier::new(threads as usize + 1);
    let begin = scope(|scope| {
        for thread in 0..threads {
            let (ready, lock, over) = (&ready, &lock, &over);
            scope.spawn(move || {
                pin_to_own_cpu(thread);
                ready.wait();
                while !over.0.load(Relaxed) {
                    lock.0.with(|sum| {
                        *sum += 1;
                        work(black_box(STEPS));
                    });
                }
            });
        }
        ready.wait();
        let begin = Instant::now();
        std::thread::sleep(time);
        over.0.store(true, Relaxed);
        begin
    });
    // The measured time ends when all threads have ended, because an earlier read of the sum would wait for the lock.
    let took = begin.elapsed();
    took.as_nanos() as f64 / lock.0.with(|sum| *sum).max(1) as f64
}

/// Does dependent steps only in registers, because the speed of a store and a load on the stack depends on the address.
#[inline(never)]
fn work(steps: u64) {
    let mut state = steps;
    for _ in 0..steps {
        state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ state >> 29;
    }
    black_box(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_place() {
        let options = Options {
            rounds: 1,
            ms: 1,
            ..Options::new(&[])
        };
        let mut table = Table::default();
        run(&options, &mut table).expect("nothing is refused");
        let sites: Vec<_> = table.rows.iter().map(|row| row.site.as_deref()).collect();
        let at = |site| sites.iter().filter(|other| **other == Some(site)).count();
        let contended = contenders(&options).count();
        let expected = [5, 3, 4 * contended];
        assert_eq!([at("pair"), at("pair_within"), at("contended")], expected);
        assert!(table.rows.iter().all(|row| row.value > 0.0), "{table}");
        assert_eq!(table.notes.len(), 4 + 2 + 3 * contended);
    }
}
