//! Measures the inputs of a simulation.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tiptoe_breakpoint::{Kind, PROCESS_RESERVATIONS, Request, Target, Wait};
use tiptoe_kernel::watchpoints::Futex;
use tiptoe_sys::raw;

use super::super::forms::{Act, Form, Slots, Storage};
use super::super::stress::Stress;
use super::locks::{Costs, Ps};
use crate::error::Error;
use crate::together::{allowed, stay_on};

/// The usual costs, in transfers of a line, for machines on which they cannot be measured.
const IN_LINES: TransferCosts = TransferCosts {
    line: 1.0,
    handed: 2.0,
    moved: 1.0,
};
const TURNS: u32 = 5_000;
const WAKES: u32 = 100;

#[derive(Clone, Debug)]
pub(super) struct Prices {
    pub(super) costs: Costs,
    /// The time of a call without its locks.
    pub(super) outside: Ps,
    pub(super) tiptoe: Holds,
    pub(super) global_mutex: Holds,
    /// The added time of a task's call under one mutex if another CPU held the mutex last.
    pub(super) handed: Ps,
    /// The added time if another CPU wrote the line of a shard (a lock and its data) or of the header.
    pub(super) moved: Ps,
}

#[derive(Clone, Debug)]
pub(super) struct Holds {
    pub(super) task: LockTimes,
    /// The times of requests for a CPU, by the number of CPUs.
    of_cpu: Vec<(u32, LockTimes)>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockTimes {
    pub(super) hold: Ps,
    /// The time to take a lock; releasing it takes as long.
    pub(super) exchange: Ps,
}

impl Holds {
    pub(super) fn of_cpu(&self, cpus: u32) -> LockTimes {
        let known = self.of_cpu.iter().find(|(of, _)| *of == cpus);
        known.map_or_else(LockTimes::default, |(_, held)| *held)
    }

    #[cfg(test)]
    pub(super) fn fixed(task: LockTimes, of_cpu: &[(u32, LockTimes)]) -> Holds {
        let of_cpu = of_cpu.to_vec();
        Holds { task, of_cpu }
    }
}

/// Measures the inputs for `sizes`, numbers of CPUs. If `line`, the ns of a transfer, is `None`, it is measured, which
/// fails with one CPU.
pub(super) fn measure(stress: &Stress, sizes: &[u32], line: Option<f64>) -> Result<Prices, Error> {
    let ideal = pair(stress, Form::Ideal, 2, 0)?;
    let lock = lock_ns();
    let within = |pair: f64| {
        let hold = (pair - ideal) / 2.0 - lock;
        LockTimes {
            hold: ps(hold),
            exchange: ps(lock / 2.0),
        }
    };
    let holds = |form: Form| -> Result<Holds, Error> {
        let of_cpu = sizes
            .iter()
            .map(|&cpus| Ok((cpus, within(pair(stress, form, cpus, 100)?))));
        Ok(Holds {
            task: within(pair(stress, form, 2, 0)?),
            of_cpu: of_cpu.collect::<Result<_, Error>>()?,
        })
    };
    let (tiptoe, global_mutex) = (holds(Form::Tiptoe)?, holds(Form::GlobalMutex)?);
    let measured = two_cpus()
        .map(|cpus| transfer_costs(stress, cpus))
        .transpose()?;
    let ways = match (measured, line) {
        (Some(measured), None) => measured,
        (measured, Some(line)) => measured.unwrap_or(IN_LINES).with_line(line),
        (None, None) => return Err(Error::OneCpu),
    };
    let (wake, woken) = wake_ns();
    Ok(Prices {
        costs: Costs {
            line: ps(ways.line),
            look: ps(per(10_000, spin_and_look)),
            looks: u64::from(Futex::LOOKS),
            wake: ps(wake),
            woken: ps(woken),
        },
        outside: ps(ideal / 2.0),
        tiptoe,
        global_mutex,
        handed: ps(ways.handed),
        moved: ps(ways.moved),
    })
}

fn ps(ns: f64) -> Ps {
    (ns * 1000.0).round().max(0.0) as Ps
}

/// Measures a pair of reserve and release on one thread. Returns the least of all rounds, which was disturbed least.
fn pair(stress: &Stress, form: Form, cpus: u32, cpu_targets: u32) -> Result<f64, Error> {
    let stress = Stress {
        cpus,
        threads: 1,
        ..*stress
    };
    let found = (0..stress.rounds).map(|_| Ok(stress.once(form, 1, cpu_targets)?.cpu_ns));
    Ok(least(&found.collect::<Result<Vec<f64>, Error>>()?))
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MAX, f64::min)
}

/// Returns the time of `done` in ns: the least of nine means of `times` calls.
fn per(times: u32, mut done: impl FnMut()) -> f64 {
    let mut once = |_| {
        let begun = Instant::now();
        (0..times).for_each(|_| done());
        begun.elapsed().as_nanos() as f64 / f64::from(times)
    };
    least(&[(); 9].map(&mut once))
}

fn spin_and_look() {
    static WORD: AtomicU64 = AtomicU64::new(1);
    spin_loop();
    // Relaxed: only the load's time matters.
    black_box(WORD.load(Ordering::Relaxed));
}

/// Returns the time to take and release a free lock, as in `tiptoe_sync`.
fn lock_ns() -> f64 {
    let word = AtomicU64::new(0);
    // Acquire and Release only choose the instructions, because there is one thread.
    per(10_000, || {
        let word = black_box(&word);
        let taken = word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        let _ = black_box(taken);
        black_box(word.swap(0, Ordering::Release));
    })
}

/// The costs of [`Prices`] whose measurement needs two CPUs.
#[derive(Clone, Copy, Debug)]
struct TransferCosts {
    line: f64,
    handed: f64,
    moved: f64,
}

impl TransferCosts {
    fn with_line(self, line: f64) -> TransferCosts {
        // A shorter measured transfer is noise.
        const LEAST_NS: f64 = 1.0;
        let own = if self.line < LEAST_NS { IN_LINES } else { self };
        let times = line / own.line;
        TransferCosts {
            line,
            handed: own.handed * times,
            moved: own.moved * times,
        }
    }
}

fn two_cpus() -> Option<[usize; 2]> {
    let mut cpus = allowed().into_iter();
    Some([cpus.next()?, cpus.next_back()?])
}

/// Measures two CPUs that take turns: without other work, then with a pair for a task under one mutex, and then, with
/// tiptoe's accounting, with a pair for a task and a pair for a CPU. The times of these pairs on a single CPU are
/// subtracted.
fn transfer_costs(stress: &Stress, cpus: [usize; 2]) -> Result<TransferCosts, Error> {
    let of = |task: u64| Target::Task { task, cpu: None };
    let request = |target| Request::new(target, Kind::Data, 1);
    let least_ns = |form, targets: [Target; 2]| -> Result<f64, Error> {
        let storage = Storage::new(2, stress.slots, PROCESS_RESERVATIONS).ok_or(Error::Numbers)?;
        let requests = targets.map(request);
        let turns = (0..stress.rounds).map(|_| storage.with(form, Turns { cpus, requests }));
        Ok(least(&turns.collect::<Vec<f64>>()))
    };
    let tasks = [of(1_000), of(1_001)];
    let bare = least_ns(Form::Ideal, tasks)?;
    let ideal = pair(stress, Form::Ideal, 2, 0)?;
    let alone = |form, targets| pair(stress, form, 2, targets);
    let mutex = least_ns(Form::GlobalMutex, tasks)? - bare;
    let mutex = mutex - 2.0 * (alone(Form::GlobalMutex, 0)? - ideal);
    let ours = least_ns(Form::Tiptoe, [tasks[0], Target::Cpu(0)])? - bare;
    let ours = ours - (alone(Form::Tiptoe, 0)? + alone(Form::Tiptoe, 100)? - 2.0 * ideal);
    Ok(TransferCosts {
        line: (bare - 2.0 * ideal).max(0.0) / 2.0,
        handed: mutex.max(0.0) / 2.0,
        // The lines of the shard and of the header are transferred there and back.
        moved: ours.max(0.0) / 4.0,
    })
}

struct Turns {
    cpus: [usize; 2],
    requests: [Request; 2],
}

impl Act<f64> for Turns {
    fn on(self, slots: &impl Slots) -> f64 {
        let turn = AtomicU32::new(0);
        let took = std::thread::scope(|scope| {
            let both = [0, 1].map(|me| {
                let (turn, request, cpu) = (&turn, &self.requests[me], self.cpus[me]);
                scope.spawn(move || {
                    stay_on(cpu);
                    let begun = Instant::now();
                    for round in 0..TURNS {
                        let mine = 2 * round + me as u32;
                        // Acquire: pairs with the other thread's Release below.
                        while turn.load(Ordering::Acquire) != mine {
                            spin_loop();
                        }
                        if slots.reserve(request) {
                            slots.release(request);
                        }
                        // Release: pairs with the Acquire above.
                        turn.store(mine + 1, Ordering::Release);
                    }
                    begun.elapsed()
                })
            });
            both.map(|one| one.join().unwrap_or_default())
        });
        let took: Duration = took.into_iter().min().unwrap_or_default();
        took.as_nanos() as f64 / f64::from(TURNS)
    }
}

fn wake_ns() -> (f64, f64) {
    let (word, since) = (AtomicU32::new(0), AtomicU64::new(0));
    let mut woken = Vec::new();
    let wakes = std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut woken = Vec::new();
            for round in 0..WAKES {
                while word.load(Ordering::SeqCst) == round {
                    let _ = raw::futex::wait(&word, round, None); // the loop checks again
                }
                let now = raw::monotonic_ns();
                woken.push(now.saturating_sub(since.load(Ordering::SeqCst)) as f64);
            }
            woken
        });
        let mut wakes = Vec::new();
        for round in 1..=WAKES {
            std::thread::sleep(Duration::from_micros(50));
            let begun = raw::monotonic_ns();
            since.store(begun, Ordering::SeqCst);
            word.store(round, Ordering::SeqCst);
            raw::futex::wake(&word, 1);
            wakes.push(raw::monotonic_ns().saturating_sub(begun) as f64);
        }
        woken = sleeper.join().unwrap_or_default();
        wakes
    });
    (quick(wakes), quick(woken))
}

/// Returns the first quartile, because other programs disturb the slower measurements.
fn quick(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 4).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a measured transfer of 0 ns multiplied the other costs by infinity.
    #[test]
    fn transfer_costs_of_zero_are_replaced_by_the_usual_ratios() {
        for line in [0.0, 1.0] {
            let ways = TransferCosts { line, ..IN_LINES }.with_line(80.0);
            assert_eq!([ways.line, ways.handed, ways.moved], [80.0, 160.0, 80.0]);
        }
    }
}
