//! `queue`: simulates the cost of accounting for debug registers (slots) on more CPUs than this machine has. Each CPU
//! runs one thread, as in `stress`. The times of critical sections, locks and transfers between CPUs are measured in
//! the same run. Only the waits are simulated.
//!
//! Up to this machine's number of CPUs, `stress` is measured for comparison. The inputs are measured several times, and
//! each set of inputs is simulated. A simulated row's spread is half the range of the results.
//!
//! Two simplifications make one mutex (`global_mutex`) look cheaper than it is. The transfer of a cache line takes as
//! long with 256 CPUs as with two, and no cache is ever too small.

mod load;
mod locks;
mod prices;
#[cfg(test)]
mod tests;

use tiptoe_breakpoint::{Geometry, PROCESS_RESERVATIONS, Registers};

use super::forms::Form;
use super::stress::{PairTimes, Stress};
use crate::error::Error;
use crate::options::up_to;
use crate::table::{Table, TableRow, median_and_spread, range};
use load::Pairs;
use locks::{Machine, Outcome};
use prices::Prices;

/// The simulated events before the [`EVENTS`] that count.
const BEFORE: u64 = if cfg!(test) { 10_000 } else { 200_000 };
const EVENTS: u64 = 4 * BEFORE;
const CALIBRATIONS: u64 = if cfg!(test) { 2 } else { 5 };

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The most CPUs.
    pub cpus: u32,
    /// The percentage of reservations that are for a CPU, not for a task; 0, 1 and 10 if `None`.
    pub cpu_targets: Option<u32>,
    /// The number of a CPU's slots.
    pub slots: u32,
    /// The mean of a thread's other work before it reserves.
    pub work_ns: u32,
    /// The time to transfer a cache line between two CPUs; if `None`, it is measured, with two CPUs.
    pub line_ns: Option<f64>,
    /// How often each input is measured.
    pub rounds: usize,
    /// The time of each measurement.
    pub ms: u32,
}

/// If a thread that never waits gets a smaller part of its CPU's time, other programs ran there.
const OWN: f64 = 0.95;

const FORMS: [Form; 2] = [Form::Tiptoe, Form::GlobalMutex];

fn geometry(cpus: u32, slots: u32) -> Result<Geometry, Error> {
    let geometry = Geometry::new(cpus, Registers::Mixed(slots), PROCESS_RESERVATIONS);
    geometry.ok_or(Error::Numbers)
}

impl Queue {
    pub(super) fn run(&self) -> Result<Table, Error> {
        let here = super::cpus();
        let stress = Stress {
            slots: self.slots,
            ..Stress::new(self.rounds, self.ms, here)
        };
        let sizes = up_to(self.cpus);
        let prices = (0..CALIBRATIONS).map(|_| prices::measure(&stress, &sizes, self.line_ns));
        let prices = prices.collect::<Result<Vec<Prices>, Error>>()?;
        let mut table = Table {
            bench: "breakpoint queue".into(),
            ..Table::default()
        };
        let mut is_quiet = true;
        for cpu_targets in self.cpu_targets.map_or(vec![0, 1, 10], |one| vec![one]) {
            for &cpus in &sizes {
                for form in FORMS {
                    let row = self.simulated(&prices, form, cpus, cpu_targets)?;
                    table.rows.push(row);
                    // `stress` has no other work.
                    if cpus <= here && self.work_ns == 0 {
                        let (row, quiet) = measured(&stress, form, cpus, cpu_targets)?;
                        table.rows.push(row);
                        is_quiet &= quiet;
                    }
                }
            }
        }
        table.notes.extend(self.notes(&prices));
        if !is_quiet {
            table.notes.push(
                "some measured rows are not to be trusted: other programs ran on these CPUs"
                    .to_owned(),
            );
        }
        Ok(table)
    }

    fn simulated(
        &self,
        calibrations: &[Prices],
        form: Form,
        cpus: u32,
        cpu_targets: u32,
    ) -> Result<TableRow, Error> {
        let geometry = geometry(cpus, self.slots)?;
        let geometry = match form {
            Form::GlobalMutex => geometry.with_shards(1),
            _ => geometry,
        };
        let work = u64::from(self.work_ns) * 1000;
        let outcome = |(prices, seed): (&Prices, u64)| {
            let load = Pairs::new(prices, &geometry, cpu_targets, work, seed);
            let costs = &prices.costs;
            Machine::new(costs, cpus as usize, load.locks(), load, seed).run(BEFORE, EVENTS)
        };
        let outcomes: Vec<Outcome> = calibrations.iter().zip(0..).map(outcome).collect();
        let of = |part: &dyn Fn(&Outcome) -> f64| outcomes.iter().map(part).collect::<Vec<f64>>();
        let all = f64::from(cpus);
        let pairs = of(&|one| {
            let accounting = (one.waited + one.worked).saturating_sub(one.own);
            accounting as f64 / 1000.0 / one.done.max(1) as f64
        });
        let waiting = of(&|one| one.waited as f64 / (one.time.max(1) as f64 * all));
        Ok(TableRow {
            threads: Some(cpus),
            cpu_targets: Some(cpu_targets),
            waiting_percent: Some(100.0 * median_and_spread(&waiting).0),
            ..TableRow::of_range(format!("{} simulated", form.name()), &pairs, "ns a pair")
        })
    }

    fn notes(&self, all: &[Prices]) -> Vec<String> {
        let ns = |part: &dyn Fn(&Prices) -> u64| {
            let all: Vec<f64> = all.iter().map(|one| part(one) as f64 / 1000.0).collect();
            let (low, high) = range(&all);
            format!(
                "{:.1} ns ({low:.1} to {high:.1})",
                median_and_spread(&all).0
            )
        };
        let shards = geometry(self.cpus, self.slots).map_or(1, |geometry| geometry.shards());
        let ways = match self.line_ns {
            Some(_) => "taken as --line-ns says, from which the others follow",
            None => "measured",
        };
        let looks = all.first().map_or(0, |prices| prices.costs.looks);
        let mut notes = vec![
            format!(
                "time by the clock that accounting takes of each CPU, a thread on each; simulated: a model, not a machine, \
                 medians of {CALIBRATIONS} calibrations, ± half their range; measured: `stress` on this machine, medians of {} \
                 rounds of {} ms, ± half the distance between the quartiles",
                self.rounds, self.ms
            ),
            format!(
                "inputs (and their range over the calibrations): a task's call holds its lock for {} (tiptoe) or {} \
                 (global_mutex), and takes and gives it back in {}; one for one CPU of {} holds for {} (tiptoe, which reads \
                 {shards} shards) or {} (global_mutex); outside: {}",
                ns(&|one| one.tiptoe.task.hold),
                ns(&|one| one.global_mutex.task.hold),
                ns(&|one| 2 * one.tiptoe.task.exchange),
                self.cpus,
                ns(&|one| one.tiptoe.of_cpu(self.cpus).hold),
                ns(&|one| one.global_mutex.of_cpu(self.cpus).hold),
                ns(&|one| one.outside)
            ),
            format!(
                "inputs from one CPU to another ({ways}): a line {}, a shard {}, a task's turn under one mutex {}; {looks} looks \
                 of {}, then it sleeps; waking takes {}, and {} until that one runs",
                ns(&|one| one.costs.line),
                ns(&|one| one.moved),
                ns(&|one| one.handed),
                ns(&|one| one.costs.look),
                ns(&|one| one.costs.wake),
                ns(&|one| one.costs.woken)
            ),
        ];
        if self.work_ns > 0 {
            notes.push(format!(
                "each thread works for {} ns before a pair, which the times exclude",
                self.work_ns
            ));
        }
        notes
    }
}

/// Measures the case on this machine. Drops the rounds that other programs disturbed, if any round was undisturbed.
fn measured(
    stress: &Stress,
    form: Form,
    threads: u32,
    cpu_targets: u32,
) -> Result<(TableRow, bool), Error> {
    let round = |_| -> Result<(PairTimes, bool), Error> {
        let found = stress.once(form, threads, cpu_targets)?;
        let ideal = stress.once(Form::Ideal, threads, cpu_targets)?;
        Ok((found, ideal.cpu_ns > OWN * ideal.ns))
    };
    let found = (0..stress.rounds).map(round);
    let found = found.collect::<Result<Vec<_>, Error>>()?;
    let is_quiet = found.iter().any(|(_, quiet)| *quiet);
    let of = |part: fn(&PairTimes) -> f64| {
        let kept = found.iter().filter(|(_, quiet)| *quiet == is_quiet);
        kept.map(|(found, _)| part(found)).collect::<Vec<f64>>()
    };
    let row = TableRow {
        threads: Some(threads),
        cpu_targets: Some(cpu_targets),
        waiting_percent: Some(100.0 * median_and_spread(&of(|found| found.waiting)).0),
        ..TableRow::new(
            format!("{} measured", form.name()),
            &of(|found| found.ns),
            "ns a pair",
        )
    };
    Ok((row, is_quiet))
}
