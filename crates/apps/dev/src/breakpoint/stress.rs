//! `stress`: threads that only reserve and then release debug registers (slots). Such a *pair* is for a CPU in a
//! percentage of the cases, otherwise for the thread itself.
//!
//! Times are wall time of pinned threads that begin together ([`crate::together`]). A thread is *waiting* while it
//! checks a held lock or sleeps until the lock's release, and *asleep* while it neither runs nor is ready to run.

use std::collections::BTreeMap;
use std::time::Duration;

use tiptoe_breakpoint::{Kind, PROCESS_RESERVATIONS, Request, Target};

use super::forms::{Act, Form, Slots, Storage};
use crate::error::Error;
use crate::options::up_to;
use crate::table::{Table, TableRow, median_and_spread};
use crate::together::together;

/// The pairs between two checks of the end flag. A multiple of 100, so that percentages are exact.
const BATCH: u32 = 200;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Stress {
    /// The most threads.
    pub threads: u32,
    /// The percentage of pairs that reserve for a CPU; 0, 1 and 10 if `None`.
    pub cpu_targets: Option<u32>,
    /// The number of a CPU's slots.
    pub slots: u32,
    /// The number of CPUs in the accounting.
    pub cpus: u32,
    /// How often each case is measured.
    pub rounds: usize,
    /// The time of each measurement.
    pub ms: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StressCase {
    cpu_targets: u32,
    threads: u32,
    form: Form,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PairTimes {
    pub(super) ns: f64,
    pub(super) cpu_ns: f64,
    pub(super) waiting: f64,
    pub(super) asleep: f64,
}

impl Stress {
    /// Returns a bench with four slots and this machine's CPUs.
    pub fn new(rounds: usize, ms: u32, threads: u32) -> Stress {
        Stress {
            threads,
            cpu_targets: None,
            slots: super::SLOTS,
            cpus: super::cpus(),
            rounds,
            ms,
        }
    }

    pub(super) fn run(&self) -> Result<Table, Error> {
        let cases = self.cases();
        let mut measured: BTreeMap<StressCase, Vec<PairTimes>> = BTreeMap::new();
        for round in 0..self.rounds {
            for turn in 0..cases.len() {
                let case = cases[(turn + round) % cases.len()];
                let found = self.measure(case)?;
                measured.entry(case).or_default().push(found);
            }
        }
        let mut table = Table {
            bench: "breakpoint stress".into(),
            ..Table::default()
        };
        let rows = measured.iter().map(|(case, found)| table_row(case, found));
        table.rows.extend(rows);
        table.notes.push(format!(
            "wall time of a pair of reserve and release, of pinned threads; medians of {} alternating rounds of {} ms, \
             {} slots, {} CPUs",
            self.rounds, self.ms, self.slots, self.cpus
        ));
        Ok(table)
    }

    fn cases(&self) -> Vec<StressCase> {
        let percentages = self.cpu_targets.map_or(vec![0, 1, 10], |one| vec![one]);
        let mut cases = Vec::new();
        for cpu_targets in percentages {
            for threads in up_to(self.threads) {
                cases.extend(Form::ALL.map(|form| StressCase {
                    cpu_targets,
                    threads,
                    form,
                }));
            }
        }
        cases
    }

    fn measure(&self, case: StressCase) -> Result<PairTimes, Error> {
        let storage = Storage::new(self.cpus, self.slots, PROCESS_RESERVATIONS);
        let storage = storage.ok_or(Error::Numbers)?;
        Ok(storage.with(
            case.form,
            StressPairs {
                case,
                cpus: self.cpus,
                time: Duration::from_millis(u64::from(self.ms)),
            },
        ))
    }

    pub(super) fn once(
        &self,
        form: Form,
        threads: u32,
        cpu_targets: u32,
    ) -> Result<PairTimes, Error> {
        self.measure(StressCase {
            cpu_targets,
            threads,
            form,
        })
    }
}

struct StressPairs {
    case: StressCase,
    cpus: u32,
    time: Duration,
}

impl Act<PairTimes> for StressPairs {
    fn on(self, slots: &impl Slots) -> PairTimes {
        let StressCase {
            cpu_targets,
            threads,
            ..
        } = self.case;
        let (work, _) = together(
            threads,
            || std::thread::sleep(self.time),
            |thread, gate| {
                let mine = requests(thread, cpu_targets, self.cpus);
                let share = gate.repeat(|| {
                    batch(slots, &mine);
                    u64::from(BATCH)
                });
                (share, ())
            },
        );
        PairTimes {
            ns: work.ns_each(),
            cpu_ns: work.cpu_ns_each(),
            waiting: slots.waited_ns() as f64 / work.lived_ns().max(1.0),
            asleep: work.asleep(),
        }
    }
}

/// Returns a batch of requests. `cpu_targets` percent, evenly spread, are for the CPUs in turn.
fn requests(thread: u32, cpu_targets: u32, cpus: u32) -> Vec<Request> {
    let holder = u64::from(thread);
    let of = |at: u32| {
        let cpus_before = at * cpu_targets / 100;
        let is_for_cpu = (at + 1) * cpu_targets / 100 > cpus_before;
        let target = match is_for_cpu {
            true => Target::Cpu((cpus_before + thread) % cpus),
            false => Target::Task {
                task: 1_000 + holder,
                cpu: None,
            },
        };
        Request::new(target, Kind::Data, holder)
    };
    (0..BATCH).map(of).collect()
}

fn batch(slots: &impl Slots, requests: &[Request]) {
    for request in requests {
        if slots.reserve(request) {
            slots.release(request);
        }
    }
}

fn table_row(case: &StressCase, found: &[PairTimes]) -> TableRow {
    let of = |part: fn(&PairTimes) -> f64| {
        let values = found.iter().map(part);
        values.collect::<Vec<f64>>()
    };
    let percent = |part| Some(100.0 * median_and_spread(&of(part)).0);
    TableRow {
        threads: Some(case.threads),
        cpu_targets: Some(case.cpu_targets),
        waiting_percent: percent(|found| found.waiting),
        asleep_percent: percent(|found| found.asleep),
        ..TableRow::new(case.form.name(), &of(|found| found.ns), "ns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_given_percentage_of_requests_is_for_cpus() {
        for percent in [0, 1, 10, 33, 100] {
            let requests = requests(3, percent, 2);
            let of_cpus = requests
                .iter()
                .filter(|one| matches!(one.target, Target::Cpu(_)));
            assert_eq!(of_cpus.count() as u32, percent * BATCH / 100);
        }
    }

    #[test]
    fn every_form_is_measured() {
        let stress = Stress {
            threads: 2,
            ..Stress::new(1, 2, 2)
        };
        let table = stress.run().expect("measured");
        assert_eq!(table.rows.len(), 3 * 2 * 3);
        assert!(table.rows.iter().all(|row| row.value > 0.0));
    }
}
