//! The session's locks of programs, and their cost.

use std::time::Duration;

use tiptoe_event::{Cost as Between, Via};
use tiptoe_price::{FutexCosts, PriceCache, futex_calls, scope_visit};
use tiptoe_session::{Basis, Cost, LockNote, Locks, Note, ProcessNote, Programs, Session};

use super::Probes;
use crate::clock::RunClock;
use crate::drive::Targets;
use crate::error::Error;
use crate::module::Module;
use crate::request::Split;
use crate::tracee::Tracee;
use crate::ulocks::{self, WaitTotals};
use crate::words::session_target;

impl Probes<'_> {
    /// Reads the mappings and stacks by which locks are named. Must be called during the run, because a process may
    /// have ended when its locks are reported.
    pub(super) fn look_for_names(&mut self, at: &mut Targets) {
        if !self.plan.locks() {
            return;
        }
        for tracee in at.traced.iter_mut().filter(|one| !one.locks.is_starting()) {
            // If the process cannot be read, the last state remains.
            let _ = tracee.look_for_names(&mut self.cache);
        }
    }

    pub(super) fn add_locks(&self, locks: Locks, at: &Targets, session: &mut Session) -> Cost {
        let holds = locks.holds.iter().map(|hold| hold.count);
        let thinned = locks.rows.iter();
        let untimed = thinned.filter_map(|row| Some(row.slept.saturating_sub(row.timed?)));
        let all = WaitTotals {
            waits: locks.waits,
            untimed: untimed.fold(0, u64::saturating_add),
            wakes: locks.wakes,
            holds: holds.fold(0, u64::saturating_add),
        };
        let kept = PriceCache::of_this_user();
        let hooks = || Some(futex_calls(&kept));
        let (visits, cpu_ns) = (self.scopes.visits, session.cpu_ns);
        let mut cost = cost(at, all, visits, cpu_ns, hooks).unwrap_or_default();
        if cost.basis == Basis::Estimated {
            cost.calibrated = kept.calibrated();
        }
        session.locks = Some(locks);
        session
            .notes
            .extend(attached_later(at, session.duration_ns));
        cost
    }

    /// Returns for how long waits were counted.
    pub(super) fn read_locks(
        &mut self,
        by: Split,
        at: &mut Targets,
        clock: RunClock,
    ) -> Result<Duration, Error> {
        let mut all = Locks::default();
        for tracee in &mut at.traced {
            tracee.locks.stop_in_kernel();
        }
        // Reads all processes before naming any, because naming takes long and the processes still run.
        let noted = at.traced.iter();
        let noted = noted.map(|tracee| tracee.locks.records(&tracee.process, by));
        let noted = noted.collect::<Result<Vec<_>, Error>>()?;
        at.fetch_cpu_times();
        let elapsed = clock.elapsed();
        for (tracee, noted) in at.traced.iter().zip(noted) {
            let target = &tracee.process.target;
            let note = tracee.locks.kernel_note(target, &tracee.coverage);
            self.report.notes.extend(note);
            if let Some((noted, names)) = noted {
                let go = names.modules.iter().any(Module::is_go);
                self.report.notes.extend(go.then_some(LockNote::Go.into()));
                let mut locks = noted.locks(names, by);
                if noted.has_unfinished() {
                    locks.deadlocks = ulocks::deadlocks(target.process, names);
                }
                if at.traced.len() > 1 {
                    let pid = target.process.pid();
                    let rows = locks.rows.iter_mut().map(|row| &mut row.lock);
                    let holds = locks.holds.iter_mut().map(|hold| &mut hold.lock);
                    let locks = rows.chain(holds);
                    locks.for_each(|lock| *lock += &format!(" (process {pid})"));
                }
                ulocks::add(&mut all, locks);
            }
        }
        all.by = by.word().to_owned();
        let in_kernel = at.traced.iter().all(|one| one.locks.is_in_kernel());
        all.via = if in_kernel { Via::Kernel } else { Via::Agent };
        self.locks = Some(all);
        Ok(elapsed)
    }
}

/// Returns the cost of counting; `None` while the price of an agent's hooks (tiptoe's patches) is unknown.
pub(super) fn cost(
    at: &Targets,
    all: WaitTotals,
    visits: u64,
    cpu_ns: u64,
    hooks: impl FnOnce() -> Option<FutexCosts>,
) -> Option<Cost> {
    let times = at
        .traced
        .iter()
        .filter_map(|one| one.locks.times_in_kernel());
    let times: Vec<_> = times.collect();
    // The BPF programs' times in all processes are reported only if the kernel measured them for each traced process.
    let every = times.iter().map(|(_, every)| *every);
    let programs = Programs {
        runs: times.iter().map(|(own, _)| own.runs).sum(),
        run_ns: times.iter().map(|(own, _)| own.run_ns).sum(),
        all_runs: every.clone().map(|all| Some(all?.runs)).sum(),
        all_run_ns: every.map(|all| Some(all?.run_ns)).sum(),
    };
    if at.traced.iter().all(|one| one.locks.is_in_kernel()) {
        return Some(Cost::measured(programs, cpu_ns));
    }
    let prices = hooks()?;
    let untimed = all.untimed.min(all.hooked());
    let timed = prices.wait.times(all.hooked() - untimed);
    let hooked = timed.plus(prices.passed_over.times(untimed));
    let ns = programs.run_ns as f64;
    let mut cost = hooked.plus(prices.wake.times(all.wakes));
    cost = cost.plus(Between::between(ns, ns, ns));
    if visits > 0 {
        cost = cost.plus(scope_visit(&PriceCache::of_this_user()).times(visits));
    }
    let calls = all.hooked().saturating_add(all.wakes);
    Some(Cost::estimated(calls.saturating_add(visits), cost, cpu_ns))
}

/// Returns a note for each process that was attached later than the first, by more than 1% of the run's duration.
fn attached_later(at: &Targets, duration_ns: u64) -> Vec<Note> {
    let recorded = |tracee: &Tracee| tracee.process.since.elapsed();
    let longest = at.traced.iter().map(recorded).max().unwrap_or_default();
    let note = |tracee: &Tracee| {
        let after_ns = longest.saturating_sub(recorded(tracee)).as_nanos() as u64;
        let process = session_target(&tracee.process.target);
        let note = ProcessNote::AttachedLater { process, after_ns };
        (after_ns * 100 > duration_ns).then(|| note.into())
    };
    at.traced.iter().filter_map(note).collect()
}
