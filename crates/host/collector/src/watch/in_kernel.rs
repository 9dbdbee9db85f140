//! The kernel's breakpoints, on all CPUs or on the process's threads. Each hit runs tiptoe's BPF program.

use std::time::Duration;

use tiptoe_event::{Cost, Via};
use tiptoe_kernel::Watchpoints;
use tiptoe_kernel::watchpoints::{Access, AttachSummary, Hits, Unreserved, Watchpoint, Window};
use tiptoe_session::{EndCause, Reservations};

use super::BEGINNING;
use super::begin::Target;
use super::breakpoints::{BreakpointReport, Breakpoints, placement, reservations};
use super::initial_rules;
use super::learned_code::LearnedCode;
use super::variables::WatchedVariable;
use crate::clock::TICK;
use crate::drive::Targets;
use crate::error::{Error, Reason};

/// While no new code is hit, only every `SELDOM`th poll learns about code.
const SELDOM: u32 = 10;
/// The pause between two checks whether events on threads have used up the allowance (the hits that the budget allows
/// in a period).
const REST_TICK: Duration = Duration::from_millis(1);

pub(super) struct KernelBreakpoints {
    set: Watchpoints,
    learned: LearnedCode,
    unreserved: Unreserved,
    /// The threads with breakpoints; `None` for all CPUs. This is kept, because the events no longer exist when the
    /// counts are read.
    attached: Option<AttachSummary>,
    until_learn: u32,
}

impl KernelBreakpoints {
    pub(super) fn new(set: Watchpoints) -> KernelBreakpoints {
        KernelBreakpoints {
            attached: set.attached(),
            set,
            learned: LearnedCode::default(),
            unreserved: Unreserved::default(),
            until_learn: 0,
        }
    }

    fn learn(&mut self, target: &mut Target, now: Duration) -> Result<(), Error> {
        if self.until_learn == 0 {
            let is_new = self.learned.learn(&mut self.set, target)?;
            let is_early = now < BEGINNING;
            self.until_learn = if is_new || is_early { 1 } else { SELDOM };
        }
        self.until_learn -= 1;
        Ok(())
    }

    /// Disables threads' events if the allowance is used up; on all CPUs, the BPF program stops them. Returns the
    /// time until the next check.
    fn rest(&mut self) -> Result<Duration, Error> {
        let is_resting = self.set.rest()?;
        Ok(match self.set.allowance() {
            Some(_) if self.attached.is_some() && !is_resting => REST_TICK,
            _ => TICK,
        })
    }
}

impl Breakpoints for KernelBreakpoints {
    fn allowance(&mut self) -> Option<u64> {
        self.set.allowance()
    }

    fn supply_initial_rules(
        &mut self,
        target: &Target,
        variables: &[WatchedVariable],
    ) -> Result<(), Error> {
        initial_rules::supply(&mut self.learned, &mut self.set, target, variables)
    }

    fn start(&mut self, _at: &Targets, _target: &Target) -> Result<(), Error> {
        Ok(self.set.start()?)
    }

    fn poll(
        &mut self,
        _at: &Targets,
        target: &mut Target,
        now: Duration,
    ) -> Result<Duration, Error> {
        let next = self.rest()?;
        self.unreserved = self.set.follow_births()?;
        self.learn(target, now)?;
        Ok(next)
    }

    fn refresh(&mut self, _at: &Targets) -> Result<Window, Error> {
        Ok(self.set.refresh()?)
    }

    fn window(&mut self, _at: &Targets) -> Result<Window, Error> {
        Ok(self.set.window()?)
    }

    fn serve(
        &mut self,
        slot: usize,
        index: usize,
        point: &Watchpoint,
        _at: &Targets,
        _target: &Target,
    ) -> Result<Window, Error> {
        Ok(self.set.serve(slot, index, point)?)
    }

    fn forget(&mut self, address: u64) -> Result<(), Error> {
        Ok(self.set.forget(address)?)
    }

    fn move_to_threads(&mut self) -> Result<Result<(), Reason>, Error> {
        if self.attached.is_none() {
            if let Some(why) = self.set.move_to_threads()? {
                return Ok(Err(Error::from(why).into()));
            }
            self.attached = self.set.attached();
        }
        Ok(Ok(()))
    }

    fn take_accesses(&mut self) -> Vec<Access> {
        self.set.each()
    }

    fn hits(&mut self, variable: u32) -> Result<Hits, Error> {
        Ok(self.set.hits(variable)?)
    }

    fn hit_cost(&mut self) -> Result<Cost, Error> {
        let times = self.set.times()?;
        let own = times.run_ns.checked_div(times.runs).unwrap_or(0) as f64;
        Ok(self.set.hit_cost().plus(Cost::between(own, own, own)))
    }

    fn ended_by(&mut self, _at: &Targets) -> Option<EndCause> {
        self.set.has_execed().then_some(EndCause::Exec)
    }

    fn stop(&mut self, _at: &Targets, _target: &mut Target) {
        // After an error the accounting is incomplete, but the hits were counted.
        if let Ok(unreserved) = self.set.follow_births() {
            self.unreserved = unreserved;
        }
        self.set.stop();
    }

    fn reservations(&mut self, _at: &Targets) -> Result<Vec<Reservations>, Error> {
        let stats = self.set.reservations()?;
        Ok(reservations(stats, self.unreserved.registers))
    }

    fn report(&mut self, _at: &Targets) -> Result<BreakpointReport, Error> {
        let set = &mut self.set;
        let by = self.attached.map_or("cpu", |_| "thread");
        Ok(BreakpointReport {
            via: Via::Kernel,
            form: placement(by, self.attached),
            rows: set.read()?,
            drops: set.drops()?,
            missed: [0; 3],
            gaps: 0,
            refused: self.unreserved.threads,
            foreign: set.foreign()?,
            sees_kernel: set.sees_kernel(),
        })
    }
}
