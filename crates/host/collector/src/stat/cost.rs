//! Estimates the cost of counting. The kernel disables and enables a task's events at each context switch, and runs
//! code at each hit of a tracepoint. Both costs are measured after the run, on tiptoe's threads, with the same
//! events.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use tiptoe_event::{Cost, Counter, CounterKind, counter_groups};
use tiptoe_kernel::CounterSet;
use tiptoe_kernel::cgroups::Times;
use tiptoe_kernel::counters::CountTarget;
use tiptoe_session::{Session, Stat, StatNote};
use tiptoe_sys::host::limits::stay_on_one_cpu;
use tiptoe_sys::raw::gettid;

use crate::request::{Request, RequestTarget};

/// The number of measurements with the events, and of those without them.
const PAIRS: usize = 9;
/// Round trips between two threads. Each trip has two context switches.
const TRIPS: u32 = 200;
const CALLS: u32 = 5_000;
const PASSED: &str = "syscalls:sys_enter_getppid";

#[derive(Clone, Copy)]
enum Job {
    Switch,
    Pass,
}

/// `groups` are the events that the kernel exchanged at `switches`.
pub(super) fn put(
    request: &Request<'_>,
    groups: &[Vec<Counter<'_>>],
    session: &mut Session,
    stat: &mut Stat,
    switches: u64,
) {
    if groups.is_empty() && stat.switches == 0 && stat.rounds == 0 {
        return;
    }
    let is_of_all = request.target == RequestTarget::System;
    let is_tracepoint =
        |counter: &Counter<'_>| matches!(counter.kind, CounterKind::Tracepoint { .. });
    let has_tracepoint = stat.tracepoint_hits > 0 || groups.iter().flatten().any(is_tracepoint);
    let prices = Ring::new().map(|ring| {
        let price = || ring.price(groups, is_of_all, Job::Switch, 2 * TRIPS);
        let switch = if groups.is_empty() { None } else { price() };
        let passed: Option<Vec<Vec<Counter<'_>>>> = has_tracepoint.then(|| {
            let groups = counter_groups(PASSED).flatten();
            groups.map(|group| group.events().collect()).collect()
        });
        let pass = passed.and_then(|passed| ring.price(&passed, is_of_all, Job::Pass, CALLS));
        (switch, pass)
    });
    let (switch, pass) = prices.unwrap_or_default();
    if has_tracepoint && pass.is_none() {
        let tracepoint = PASSED.to_owned();
        let note = StatNote::HitCostUnknown { tracepoint };
        session.notes.push(note.into());
    }
    if switch.is_none() && !groups.is_empty() {
        session.notes.push(StatNote::SwitchCostUnknown.into());
    }
    let (switch, pass) = (switch.unwrap_or_default(), pass.unwrap_or_default());
    let of_hits = pass.times(stat.tracepoint_hits);
    let of_programs = timed(stat, is_of_all);
    let of_switches = switch.times(switches);
    if !groups.is_empty() {
        (stat.switches, stat.switch_ns) = (switches, switch.ns);
    }
    let total = of_programs.plus(of_switches).plus(of_hits);
    stat.tracepoint_ns = pass.ns;
    let hits = stat.switches + stat.lives + stat.tracepoint_hits;
    session.cost = tiptoe_session::Cost::estimated(hits, total, session.cpu_ns);
}

/// Of the BPF programs' runs at context switches, only a sample is timed.
pub(super) fn add_times(stat: &mut Stat, all: Times) {
    let times = all.switches;
    let [within, to_another] = [0, 1].map(|kind| match times.timed[kind] {
        // If no run of this kind was timed, takes the mean of both kinds.
        0 => {
            times.timed_ns.iter().sum::<u64>() as f64
                / times.timed.iter().sum::<u64>().max(1) as f64
        }
        timed => times.timed_ns[kind] as f64 / timed as f64,
    });
    let mut runs_within = stat.switches - stat.cgroup_switches;
    let [runs, runs_to_another] = times.runs;
    add_runs(&mut runs_within, &mut stat.switch_ns, runs, within);
    let (sum, mean) = (&mut stat.cgroup_switches, &mut stat.cgroup_switch_ns);
    add_runs(sum, mean, runs_to_another, to_another);
    stat.switches = runs_within + stat.cgroup_switches;
    let each = |ns: u64, runs: u64| ns as f64 / runs.max(1) as f64;
    let ns = each(all.lives_ns, all.lives);
    add_runs(&mut stat.lives, &mut stat.life_ns, all.lives, ns);
    let ns = each(all.rounds_ns, all.rounds);
    add_runs(&mut stat.rounds, &mut stat.round_ns, all.rounds, ns);
}

fn add_runs(sum: &mut u64, mean_ns: &mut f64, runs: u64, ns: f64) {
    let before = *sum as f64;
    *sum += runs;
    *mean_ns = match *sum {
        0 => 0.0,
        all => (*mean_ns * before + ns * runs as f64) / all as f64,
    };
}

/// The call of the BPF program takes about as long as the reading of the clock that a timed run includes, so the call
/// is not added.
///
/// Rounds over all tasks take time of tiptoe's own thread, which only the whole system's time includes.
fn timed(stat: &Stat, is_of_all: bool) -> Cost {
    let within = (stat.switches - stat.cgroup_switches) as f64 * stat.switch_ns;
    let rounds = if is_of_all { stat.rounds } else { 0 };
    let ns = within
        + stat.cgroup_switches as f64 * stat.cgroup_switch_ns
        + stat.lives as f64 * stat.life_ns
        + rounds as f64 * stat.round_ns;
    Cost::between(ns * 0.7, ns, ns * 1.3)
}

/// Two threads on one CPU that wake each other in turns.
struct Ring {
    tids: Vec<u32>,
    cpu: u32,
    ask: Sender<Job>,
    took: Receiver<f64>,
}

impl Ring {
    fn new() -> Option<Ring> {
        let ((left_in, right_out), (right_in, left_out)) = (pipe().ok()?, pipe().ok()?);
        let (ready, started) = channel();
        let (ask, jobs) = channel();
        let (answer, took) = channel();
        let ready_too = ready.clone();
        std::thread::spawn(move || {
            let _ = ready.send((stay_on_one_cpu(), gettid()));
            other(right_in, right_out);
        });
        std::thread::spawn(move || {
            let _ = ready_too.send((stay_on_one_cpu(), gettid()));
            drop(ready_too);
            work(left_in, left_out, &jobs, &answer);
        });
        let threads: Vec<(Option<u32>, u32)> = started.iter().take(2).collect();
        let tids: Vec<u32> = threads.iter().map(|(_, tid)| *tid).collect();
        (tids.len() == 2).then_some(())?;
        Some(Ring {
            tids,
            cpu: threads.first()?.0?,
            ask,
            took,
        })
    }

    /// Measures how much longer a job takes while these events count. Returns this time divided by `each`, the job's
    /// number of parts.
    fn price(
        &self,
        groups: &[Vec<Counter<'_>>],
        of_all: bool,
        job: Job,
        each: u32,
    ) -> Option<Cost> {
        let whom = match of_all {
            true => CountTarget::Cpus(vec![self.cpu]),
            false => CountTarget::Threads(self.tids.clone()),
        };
        self.run(job)?;
        let mut more = Vec::new();
        for _ in 0..PAIRS {
            let without = self.run(job)?;
            let set = CounterSet::open(groups, &whom).ok()?;
            set.enable().ok()?;
            let with = self.run(job)?;
            drop(set);
            more.push(((with - without) / f64::from(each)).max(0.0));
        }
        more.sort_by(f64::total_cmp);
        let at = |part: usize| more[part * (more.len() - 1) / 4];
        Some(Cost::between(at(1), at(2), at(3)))
    }

    fn run(&self, job: Job) -> Option<f64> {
        self.ask.send(job).ok()?;
        self.took.recv().ok()
    }
}

fn work(mut from: PipeReader, mut to: PipeWriter, jobs: &Receiver<Job>, answer: &Sender<f64>) {
    for job in jobs {
        let start = Instant::now();
        match job {
            Job::Switch => {
                for _ in 0..TRIPS {
                    let mut byte = [0];
                    if to
                        .write_all(&[1])
                        .and_then(|()| from.read_exact(&mut byte))
                        .is_err()
                    {
                        return;
                    }
                }
            }
            Job::Pass => {
                for _ in 0..CALLS {
                    // SAFETY: getppid takes no arguments and cannot fail.
                    unsafe { libc::getppid() };
                }
            }
        }
        if answer.send(start.elapsed().as_nanos() as f64).is_err() {
            return;
        }
    }
}

fn other(mut from: PipeReader, mut to: PipeWriter) {
    let mut byte = [0];
    while from
        .read_exact(&mut byte)
        .and_then(|()| to.write_all(&byte))
        .is_ok()
    {}
}
