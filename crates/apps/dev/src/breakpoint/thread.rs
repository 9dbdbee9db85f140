//! `thread`: threads that are created, sleep and end, as in `perf bench breakpoint thread`. `parallel` workers create
//! them in batches.
//!
//! In the case `tiptoe`, each thread reserves debug registers (slots) when it begins and releases them when it ends,
//! without opening events. `ideal` makes the same calls without accounting, so the difference of `tiptoe` and `ideal`
//! is the cost of accounting. In `none` threads make no calls; in `kernel` they inherit events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tiptoe_breakpoint::{Kind, PROCESS_RESERVATIONS, Request, Target};
use tiptoe_sys::raw::futex;

use super::forms::{Act, Form, NoAccounting, Slots, Storage};
use super::inherited;
use crate::error::Error;
use crate::table::{Table, TableRow, interval, median_and_spread};

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The number of batches of all workers together.
    pub repeat: u32,
    /// The number of each thread's slots; in `kernel`, of its breakpoints.
    pub breakpoints: u32,
    /// The number of workers.
    pub parallel: u32,
    /// The number of a batch's threads.
    pub threads: u32,
    /// How often each case is measured.
    pub rounds: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ThreadCase {
    None,
    Of(Form),
    Kernel,
}

impl ThreadCase {
    const ALL: [ThreadCase; 5] = [
        ThreadCase::None,
        ThreadCase::Of(Form::Ideal),
        ThreadCase::Of(Form::Tiptoe),
        ThreadCase::Of(Form::GlobalMutex),
        ThreadCase::Kernel,
    ];

    fn name(self) -> &'static str {
        match self {
            ThreadCase::None => "none",
            ThreadCase::Of(form) => form.name(),
            ThreadCase::Kernel => "kernel",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct ThreadTimes {
    us_per_op: f64,
    /// The time that threads waited for a lock, as a part of the workers' time.
    waiting: f64,
}

impl Thread {
    pub(super) fn run(&self) -> Result<Table, Error> {
        let mut table = Table {
            bench: "breakpoint thread".into(),
            ..Table::default()
        };
        let mut cases = ThreadCase::ALL.to_vec();
        if let Err(error) = in_a_thread(|| inherited(self.breakpoints).map(drop)) {
            cases.retain(|&case| case != ThreadCase::Kernel);
            table.notes.push(format!("skipped: kernel ({error})"));
        }
        let mut measured: BTreeMap<ThreadCase, Vec<ThreadTimes>> = BTreeMap::new();
        for round in 0..self.rounds {
            for turn in 0..cases.len() {
                // Every other round is reversed, because a case may disturb the next.
                let turn = match round.is_multiple_of(2) {
                    true => turn,
                    false => cases.len() - 1 - turn,
                };
                let case = cases[(turn + round / 2) % cases.len()];
                let found = self.measure(case)?;
                measured.entry(case).or_default().push(found);
            }
        }
        for (case, found) in &measured {
            self.add(&mut table, *case, found);
        }
        compare(&mut table, &measured);
        Ok(table)
    }

    fn measure(&self, case: ThreadCase) -> Result<ThreadTimes, Error> {
        let alone = Thread {
            breakpoints: 0,
            ..*self
        };
        match case {
            ThreadCase::None => Ok(in_a_thread(|| alone.on(&NoAccounting))),
            ThreadCase::Kernel => in_a_thread(|| {
                let _events = inherited(self.breakpoints).map_err(|error| Error::Io {
                    what: "opening the kernel's breakpoints",
                    error,
                })?;
                Ok(alone.on(&NoAccounting))
            }),
            ThreadCase::Of(form) => {
                let most = self.parallel * self.threads * self.breakpoints;
                let reservations = PROCESS_RESERVATIONS.max(2 * most);
                let storage = Storage::new(super::cpus(), super::SLOTS, reservations);
                let storage = storage.ok_or(Error::Numbers)?;
                Ok(in_a_thread(|| storage.with(form, *self)))
            }
        }
    }

    fn add(&self, table: &mut Table, case: ThreadCase, found: &[ThreadTimes]) {
        let of = |part: &dyn Fn(&ThreadTimes) -> f64| {
            let values = found.iter().map(part);
            values.collect::<Vec<f64>>()
        };
        let each = f64::from(self.parallel);
        let waiting = median_and_spread(&of(&|found| found.waiting)).0;
        let mut row = |unit, values: &[f64]| {
            table.rows.push(TableRow {
                threads: Some(self.threads),
                waiting_percent: Some(100.0 * waiting),
                ..TableRow::new(case.name(), values, unit).of_threads(self.parallel * self.threads)
            });
        };
        let times = of(&|found| found.us_per_op);
        row("usecs/op", &times);
        row("usecs/op/cpu", &of(&|found| found.us_per_op * each));
        let lines = self.as_perf(case.name(), median_and_spread(&times).0);
        table.lines.extend(lines);
    }

    fn as_perf(&self, case: &str, us_per_op: f64) -> [String; 7] {
        let ops = f64::from(self.repeat) * f64::from(self.threads);
        let each = us_per_op * f64::from(self.parallel);
        [
            format!("# Running 'breakpoint/thread' benchmark: {case}"),
            format!(
                "# Created/joined {} threads with {} breakpoints and {} parallelism",
                self.repeat, self.breakpoints, self.parallel
            ),
            format!("     Total time: {:.3} [sec]", us_per_op * ops / 1e6),
            String::new(),
            format!("{us_per_op:15.6} usecs/op"),
            format!("{each:15.6} usecs/op/cpu"),
            String::new(),
        ]
    }
}

fn compare(table: &mut Table, measured: &BTreeMap<ThreadCase, Vec<ThreadTimes>>) {
    let ideal = measured.get(&ThreadCase::Of(Form::Ideal));
    let ideal = ideal.map_or(&[][..], Vec::as_slice);
    for (case, found) in measured {
        let pairs = found.iter().zip(ideal);
        let more: Vec<f64> = pairs
            .map(|(found, ideal)| 100.0 * (found.us_per_op / ideal.us_per_op - 1.0))
            .collect();
        let what = match case {
            ThreadCase::Of(Form::Ideal) => continue,
            ThreadCase::Of(Form::Tiptoe) => "accounting (tiptoe)",
            ThreadCase::Of(Form::GlobalMutex) => "accounting (global_mutex)",
            ThreadCase::None => "no call (none)",
            ThreadCase::Kernel => "open events (kernel)",
        };
        let (low, high) = interval(&more);
        let contains = match low <= 0.0 && 0.0 <= high {
            true => "; it contains 0",
            false => "",
        };
        table.notes.push(format!(
            "{what}: {:+.1} % of ideal's time to a thread (95% interval {low:+.1} to {high:+.1}, {} alternating \
             pairs{contains})",
            median_and_spread(&more).0,
            more.len()
        ));
    }
}

/// Runs `work` in a new thread, so that only threads that `work` creates inherit its events.
fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let done = scope.spawn(work).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Act<ThreadTimes> for Thread {
    fn on(self, slots: &impl Slots) -> ThreadTimes {
        let batches = AtomicU32::new(self.repeat);
        let tasks = AtomicU64::new(1);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.parallel {
                scope.spawn(|| {
                    // Relaxed: a count of batches.
                    let next = || {
                        let order = Ordering::Relaxed;
                        batches.fetch_update(order, order, |left| left.checked_sub(1))
                    };
                    while next().is_ok() {
                        self.batch(slots, &tasks);
                    }
                });
            }
        });
        let us = begun.elapsed().as_secs_f64() * 1e6;
        ThreadTimes {
            us_per_op: us / f64::from(self.repeat) / f64::from(self.threads),
            waiting: slots.waited_ns() as f64 / 1e3 / us / f64::from(self.parallel),
        }
    }
}

impl Thread {
    fn batch(&self, slots: &impl Slots, tasks: &AtomicU64) {
        let is_done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                // Relaxed: a unique number.
                let task = tasks.fetch_add(1, Ordering::Relaxed);
                let is_done = &is_done;
                scope.spawn(move || self.live(slots, task, is_done));
            }
            is_done.store(1, Ordering::SeqCst);
            futex::wake(&is_done, i32::MAX as u32);
        });
    }

    fn live(&self, slots: &impl Slots, task: u64, is_done: &AtomicU32) {
        let request = |holder: u32| {
            let target = Target::Task { task, cpu: None };
            Request::new(target, Kind::Data, u64::from(holder))
        };
        let granted = (0..self.breakpoints).filter(|&holder| slots.reserve(&request(holder)));
        let granted = granted.count() as u32;
        while is_done.load(Ordering::SeqCst) == 0 {
            let _ = futex::wait(is_done, 0, None); // the loop checks again
        }
        (0..granted).for_each(|holder| slots.release(&request(holder)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Thread = Thread {
        repeat: 10,
        breakpoints: 4,
        parallel: 2,
        threads: 3,
        rounds: 2,
    };

    #[test]
    fn every_form_is_measured() {
        let table = SMALL.run().expect("measured");
        let of = |unit| table.rows.iter().filter(move |row| row.unit == unit);
        assert!(of("usecs/op").count() >= 4);
        let both = of("usecs/op").zip(of("usecs/op/cpu"));
        for (op, cpu) in both {
            assert!((cpu.value / op.value - 2.0).abs() < 1e-6);
        }
    }

    /// Regression: the cost of accounting was taken from a hot loop of reserve and release, not from threads with and
    /// without accounting.
    #[test]
    fn accounting_has_the_interval_of_alternating_pairs() {
        let us = |us_per_op: &f64| ThreadTimes {
            us_per_op: *us_per_op,
            waiting: 0.0,
        };
        let of = |form, times: &[f64]| (ThreadCase::Of(form), times.iter().map(us).collect());
        let measured = |ideal: &[f64], tiptoe: &[f64]| {
            BTreeMap::<ThreadCase, Vec<ThreadTimes>>::from([
                of(Form::Ideal, ideal),
                of(Form::Tiptoe, tiptoe),
            ])
        };
        let mut table = Table::default();
        compare(
            &mut table,
            &measured(&[100.0, 200.0, 50.0], &[101.0, 198.0, 52.0]),
        );
        compare(&mut table, &measured(&[100.0; 3], &[110.0, 120.0, 130.0]));
        let note = "accounting (tiptoe): +1.0 % of ideal's time to a thread (95% interval -1.0 to +4.0, 3 alternating \
                    pairs; it contains 0)";
        assert_eq!(table.notes[0], note);
        assert!(table.notes[1].ends_with("interval +10.0 to +30.0, 3 alternating pairs)"));
    }

    #[test]
    fn the_lines_are_perfs() {
        let lines = SMALL.as_perf("kernel", 113.3);
        let perfs = "# Created/joined 10 threads with 4 breakpoints and 2 parallelism\n     Total time: 0.003 [sec]\n\n     \
                     113.300000 usecs/op\n     226.600000 usecs/op/cpu\n";
        assert_eq!(lines[1..].join("\n"), perfs);
    }
}
