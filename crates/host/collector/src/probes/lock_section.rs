//! The contended locks of all processes of a run.

use tiptoe_event::{Cost as Between, Via};
use tiptoe_price::{FutexCosts, PriceCache, futex_calls, scope_visit};
use tiptoe_session::{Cost, LockNote, Locks, Programs};

use super::{Run, stop_clocks};
use crate::module::Module;
use crate::request::Error;
use crate::tracee::Tracee;
use crate::ulocks::{self, WaitTotals};

impl Run<'_> {
    /// Reads what naming locks and code needs, because a process may have ended when they are
    /// reported.
    pub(super) fn look_for_names(&mut self) {
        if !self.plan.locks {
            return;
        }
        for tracee in &mut self.tracees {
            // If the process cannot be read, the last state remains.
            let _ = tracee.look_for_names(&mut self.cache);
        }
    }

    /// Computes the cost of watching locks; returns whether the run watches locks.
    pub(super) fn price_locks(&mut self) -> bool {
        let Some(locks) = &self.session.locks else {
            return false;
        };
        let times = self.tracees.iter().filter_map(Tracee::times_in_kernel);
        let times: Vec<_> = times.collect();
        let run_ns = times.iter().map(|(own, _)| own.run_ns).sum();
        let runs = times.iter().map(|(own, _)| own.runs).sum();
        // Reported only if the kernel measured it in each of the run's processes.
        let all = times.iter().filter_map(|(_, all)| *all);
        let all: Option<Vec<_>> = (all.clone().count() == times.len()).then(|| all.collect());
        let programs = Programs {
            runs,
            run_ns,
            all_runs: all.as_ref().map(|all| all.iter().map(|all| all.runs).sum()),
            all_run_ns: all.map(|all| all.iter().map(|all| all.run_ns).sum()),
        };
        let cpu_ns = self.session.cpu_ns;
        self.session.cost = match self.tracees.iter().all(Tracee::is_in_kernel) {
            true => Cost::measured(programs, cpu_ns),
            false => {
                let kept = PriceCache::of_this_user();
                let costs = futex_calls(&kept);
                let holds = locks.holds.iter().map(|hold| hold.count);
                let thinned = locks.rows.iter();
                let untimed = thinned.filter_map(|row| Some(row.slept.saturating_sub(row.timed?)));
                let all = WaitTotals {
                    waits: locks.waits,
                    untimed: untimed.fold(0, u64::saturating_add),
                    wakes: locks.wakes,
                    holds: holds.fold(0, u64::saturating_add),
                };
                let cost = cost_of(all, &costs);
                let cost = match self.scope_visits {
                    0 => cost,
                    visits => cost.plus(scope_visit(&kept).times(visits)),
                };
                let ns = run_ns as f64;
                let calls = all
                    .hooked()
                    .saturating_add(all.wakes)
                    .saturating_add(self.scope_visits);
                let cost = cost.plus(Between::between(ns, ns, ns));
                Cost {
                    calibrated: kept.calibrated(),
                    ..Cost::estimated(calls, cost, cpu_ns)
                }
            }
        };
        true
    }

    /// Adds the locks to the session.
    pub(super) fn add_locks(&mut self) -> Result<(), Error> {
        let Some(by) = self.request.locks else {
            return Ok(());
        };
        let mut all = Locks::default();
        self.tracees.iter_mut().for_each(Tracee::stop_in_kernel);
        // Reads all processes before naming any: naming takes long, and the processes still run.
        let noted = self.tracees.iter().map(|tracee| tracee.wait_records(by));
        let noted = noted.collect::<Result<Vec<_>, Error>>()?;
        stop_clocks(&mut self.session, self.start, &self.tracees);
        for (tracee, noted) in self.tracees.iter().zip(noted) {
            self.session.notes.extend(tracee.kernel_note());
            if let Some((noted, names)) = noted {
                let go = names.modules.iter().any(Module::is_go);
                self.session.notes.extend(go.then_some(LockNote::Go.into()));
                let mut locks = noted.locks(names, by);
                if noted.has_unfinished() {
                    locks.deadlocks = ulocks::deadlocks(tracee.target.process, names);
                }
                if self.tracees.len() > 1 {
                    let pid = tracee.target.process.pid();
                    let rows = locks.rows.iter_mut();
                    rows.for_each(|row| row.lock += &format!(" (process {pid})"));
                    let holds = locks.holds.iter_mut();
                    holds.for_each(|hold| hold.lock += &format!(" (process {pid})"));
                }
                ulocks::add(&mut all, locks);
            }
        }
        all.by = by.word().to_owned();
        let in_kernel = self.tracees.iter().all(Tracee::is_in_kernel);
        all.via = if in_kernel { Via::Kernel } else { Via::Agent };
        self.session.locks = Some(all);
        Ok(())
    }
}

/// Returns the cost of waits, holds and wakes.
pub(super) fn cost_of(all: WaitTotals, costs: &FutexCosts) -> Between {
    let untimed = all.untimed.min(all.hooked());
    let timed = costs.wait.times(all.hooked() - untimed);
    let untimed = costs.passed_over.times(untimed);
    timed.plus(untimed).plus(costs.wake.times(all.wakes))
}
