//! `thread`: threads that are created, sleep and end, as in `perf bench breakpoint thread`: `parallel` workers take
//! batches, and a batch creates its threads, wakes them and joins them.
//!
//! Each thread reserves its slots when it begins and releases them when it ends; no event is opened. For comparison
//! there are `none`, the threads alone, and `kernel`, the kernel's events, which each thread inherits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tiptoe_breakpoint::{Kind, Request, Target};
use tiptoe_sys::raw::futex;

use super::forms::{Act, Form, Off, Slots, Storage};
use super::{inherited, stress::Stress};
use crate::error::Error;
use crate::table::{Table, TableRow, interval, median_and_spread};

/// The measurement and its length.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// The number of batches, over all workers.
    pub repeat: u32,
    /// The slots, or breakpoints, of each thread.
    pub breakpoints: u32,
    /// The number of workers.
    pub parallel: u32,
    /// The threads of a batch.
    pub threads: u32,
    /// How often each case is measured; the cases alternate.
    pub rounds: usize,
}

/// What each thread does in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    None,
    Of(Form),
    Kernel,
}

impl Case {
    const ALL: [Case; 5] = [
        Case::None,
        Case::Of(Form::Ideal),
        Case::Of(Form::Tiptoe),
        Case::Of(Form::GlobalMutex),
        Case::Kernel,
    ];

    fn name(self) -> &'static str {
        match self {
            Case::None => "none",
            Case::Of(form) => form.name(),
            Case::Kernel => "kernel",
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct Measured {
    us_per_op: f64,
    /// The share of the workers' time in which threads waited for a lock.
    waiting: f64,
}

impl Thread {
    pub(super) fn run(&self) -> Result<Table, Error> {
        let mut table = Table {
            bench: "breakpoint thread",
            ..Table::default()
        };
        let mut cases = Case::ALL.to_vec();
        if let Err(error) = in_a_thread(|| inherited(self.breakpoints).map(drop)) {
            cases.retain(|&case| case != Case::Kernel);
            table.notes.push(format!("skipped: kernel ({error})"));
        }
        let mut measured: BTreeMap<Case, Vec<Measured>> = BTreeMap::new();
        for round in 0..self.rounds {
            for turn in 0..cases.len() {
                let case = cases[(turn + round) % cases.len()];
                let found = self.measure(case)?;
                measured.entry(case).or_default().push(found);
            }
        }
        for (case, found) in &measured {
            self.add(&mut table, *case, found);
        }
        self.compare(&mut table, &measured)?;
        Ok(table)
    }

    fn measure(&self, case: Case) -> Result<Measured, Error> {
        let alone = Thread {
            breakpoints: 0,
            ..*self
        };
        match case {
            Case::None => Ok(in_a_thread(|| alone.on(&Off))),
            Case::Kernel => in_a_thread(|| {
                let _events = inherited(self.breakpoints).map_err(|error| Error::Io {
                    what: "opening the kernel's breakpoints",
                    error,
                })?;
                Ok(alone.on(&Off))
            }),
            Case::Of(form) => {
                let most = self.parallel * self.threads * self.breakpoints;
                let storage = Storage::new(super::cpus(), super::SLOTS, 2 * most);
                let storage = storage.ok_or(Error::Numbers)?;
                Ok(in_a_thread(|| storage.with(form, *self)))
            }
        }
    }

    fn add(&self, table: &mut Table, case: Case, found: &[Measured]) {
        let of = |part: &dyn Fn(&Measured) -> f64| {
            let values = found.iter().map(part);
            values.collect::<Vec<f64>>()
        };
        let each = f64::from(self.parallel);
        let waiting = median_and_spread(&of(&|found| found.waiting)).0;
        let mut row = |unit, values: &[f64]| {
            table.rows.push(TableRow {
                threads: Some(self.threads),
                waiting_percent: Some(100.0 * waiting),
                ..TableRow::new(case.name(), values, unit)
            });
        };
        row("usecs/op", &of(&|found| found.us_per_op));
        row("usecs/op/cpu", &of(&|found| found.us_per_op * each));
    }

    /// Adds notes: how much more each case takes than `ideal` in the same rounds, and how much accounting should add.
    fn compare(
        &self,
        table: &mut Table,
        measured: &BTreeMap<Case, Vec<Measured>>,
    ) -> Result<(), Error> {
        let ideal = measured.get(&Case::Of(Form::Ideal));
        let ideal = ideal.map_or(&[][..], Vec::as_slice);
        for (case, found) in measured {
            if *case == Case::Of(Form::Ideal) {
                continue;
            }
            let pairs = found.iter().zip(ideal);
            let more: Vec<f64> = pairs
                .map(|(found, ideal)| 100.0 * (found.us_per_op / ideal.us_per_op - 1.0))
                .collect();
            let (low, high) = interval(&more);
            table.notes.push(format!(
                "{}: {:+.1} % of ideal's time (95% interval {low:+.1} to {high:+.1}, {} alternating pairs)",
                case.name(),
                median_and_spread(&more).0,
                more.len()
            ));
        }
        let threads = self.parallel.min(super::cpus());
        let pair = Stress::new(7, 10, threads).pair(threads)?;
        let times: Vec<f64> = ideal.iter().map(|found| found.us_per_op).collect();
        let op = median_and_spread(&times).0;
        let added = pair * f64::from(self.breakpoints);
        table.notes.push(format!(
            "accounting adds {:.2} %: {} pairs of {pair:.0} ns ({threads} threads) to {op:.1} usecs",
            added / op / 10.0,
            self.breakpoints
        ));
        Ok(())
    }
}

/// Runs work in a thread of its own, so that no other thread inherits from it.
fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let done = scope.spawn(work).join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Act<Measured> for Thread {
    fn on(self, slots: &impl Slots) -> Measured {
        let batches = AtomicU32::new(self.repeat);
        let tasks = AtomicU64::new(1);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..self.parallel {
                scope.spawn(|| {
                    // Relaxed: the number itself is all that a worker needs.
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
        Measured {
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
                // Relaxed: a unique number is all that a thread needs.
                let task = tasks.fetch_add(1, Ordering::Relaxed);
                let is_done = &is_done;
                scope.spawn(move || self.live(slots, task, is_done));
            }
            is_done.store(1, Ordering::SeqCst);
            futex::wake(&is_done, i32::MAX as u32);
        });
    }

    /// Runs one thread of a batch.
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

    #[test]
    fn every_form_is_measured() {
        let thread = Thread {
            repeat: 10,
            breakpoints: 4,
            parallel: 2,
            threads: 3,
            rounds: 2,
        };
        let table = thread.run().expect("measured");
        let of = |unit| table.rows.iter().filter(move |row| row.unit == unit);
        assert!(of("usecs/op").count() >= 4);
        let both = of("usecs/op").zip(of("usecs/op/cpu"));
        for (op, cpu) in both {
            assert!((cpu.value / op.value - 2.0).abs() < 1e-6);
        }
    }
}
