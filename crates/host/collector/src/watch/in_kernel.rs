//! The kernel's breakpoints, on all CPUs or on the process's threads. Each hit runs our BPF program.

use std::time::Duration;

use tiptoe_event::{Cost, Via};
use tiptoe_kernel::Watchpoints;
use tiptoe_kernel::watchpoints::{Access, AttachSummary, Hits, Unreserved, Watchpoint, Window};
use tiptoe_session::{EndCause, Reservations};

use super::BEGINNING;
use super::begin::Target;
use super::breakpoints::{BreakpointReport, Breakpoints, Moved, placement, reservations};
use super::initial_rules;
use super::learned_code::LearnedCode;
use super::variables::WatchedVariable;
use crate::clock::TICK;
use crate::drive::Targets;
use crate::error::Error;

/// If no new code was hit, only one turn in this many learns.
const SELDOM: u32 = 10;
/// The pause between two checks of the allowance of threads' events, which only the loop can disable.
const REST_TICK: Duration = Duration::from_millis(1);

/// Breakpoints on all CPUs; `None` once they have moved to threads.
pub(super) struct CpuBreakpoints(pub(super) Option<KernelBreakpoints>);

pub(super) struct ThreadBreakpoints {
    kernel: KernelBreakpoints,
    attached: Option<AttachSummary>,
}

pub(super) struct KernelBreakpoints {
    set: Watchpoints,
    learned: LearnedCode,
    /// Threads that are not accounted for.
    unreserved: Unreserved,
    until_learn: u32,
}

pub(super) trait InKernel {
    const BY: &str;

    fn kernel(&mut self) -> &mut KernelBreakpoints;

    fn attached(&self) -> Option<AttachSummary> {
        None
    }

    /// Disables the events if the allowance is used up, unless the BPF program does so. Returns the time until the next
    /// check.
    fn rest(&mut self) -> Result<Duration, Error> {
        Ok(TICK)
    }

    fn to_threads(&mut self) -> Result<Moved, Error> {
        Ok(Ok(None))
    }
}

impl InKernel for CpuBreakpoints {
    const BY: &str = "cpu";

    fn kernel(&mut self) -> &mut KernelBreakpoints {
        self.0.as_mut().expect("replaced by those of threads")
    }

    fn to_threads(&mut self) -> Result<Moved, Error> {
        if let Some(why) = self.kernel().set.move_to_threads()? {
            return Ok(Err(Error::from(why).into()));
        }
        let moved = self.0.take().map(ThreadBreakpoints::of);
        Ok(Ok(
            moved.map(|moved| Box::new(moved) as Box<dyn Breakpoints>)
        ))
    }
}

impl InKernel for ThreadBreakpoints {
    const BY: &str = "thread";

    fn kernel(&mut self) -> &mut KernelBreakpoints {
        &mut self.kernel
    }

    fn attached(&self) -> Option<AttachSummary> {
        self.attached
    }

    fn rest(&mut self) -> Result<Duration, Error> {
        let set = &mut self.kernel.set;
        let is_resting = set.rest()?;
        Ok(match set.allowance() {
            Some(_) if !is_resting => REST_TICK,
            _ => TICK,
        })
    }
}

impl ThreadBreakpoints {
    pub(super) fn of(kernel: KernelBreakpoints) -> ThreadBreakpoints {
        // Kept, because the events no longer exist when the counts are read.
        let attached = kernel.set.attached();
        ThreadBreakpoints { kernel, attached }
    }
}

impl KernelBreakpoints {
    pub(super) fn new(set: Watchpoints) -> KernelBreakpoints {
        KernelBreakpoints {
            set,
            learned: LearnedCode::default(),
            unreserved: Unreserved::default(),
            until_learn: 0,
        }
    }

    /// Learns about the code that hit: in each turn while code is new, later more seldom.
    fn learn(&mut self, target: &mut Target, now: Duration) -> Result<(), Error> {
        if self.until_learn == 0 {
            let is_new = self.learned.learn(&mut self.set, target)?;
            let is_early = now < BEGINNING;
            self.until_learn = if is_new || is_early { 1 } else { SELDOM };
        }
        self.until_learn -= 1;
        Ok(())
    }
}

impl<F: InKernel> Breakpoints for F {
    fn allowance(&mut self) -> Option<u64> {
        self.kernel().set.allowance()
    }

    fn supply_initial_rules(
        &mut self,
        target: &Target,
        variables: &[WatchedVariable],
    ) -> Result<(), Error> {
        let KernelBreakpoints { set, learned, .. } = self.kernel();
        initial_rules::supply(learned, set, target, variables)
    }

    fn start(&mut self, _at: &Targets, _target: &Target) -> Result<(), Error> {
        Ok(self.kernel().set.start()?)
    }

    fn poll(
        &mut self,
        _at: &Targets,
        target: &mut Target,
        now: Duration,
    ) -> Result<Duration, Error> {
        let next = self.rest()?;
        self.kernel().unreserved = self.kernel().set.follow_births()?;
        self.kernel().learn(target, now)?;
        Ok(next)
    }

    fn refresh(&mut self, _at: &Targets) -> Result<Window, Error> {
        Ok(self.kernel().set.refresh()?)
    }

    fn window(&mut self, _at: &Targets) -> Result<Window, Error> {
        Ok(self.kernel().set.window()?)
    }

    fn serve(
        &mut self,
        slot: usize,
        index: usize,
        point: &Watchpoint,
        _at: &Targets,
        _target: &Target,
    ) -> Result<Window, Error> {
        Ok(self.kernel().set.serve(slot, index, point)?)
    }

    fn forget(&mut self, address: u64) -> Result<(), Error> {
        Ok(self.kernel().set.forget(address)?)
    }

    fn move_to_threads(&mut self) -> Result<Moved, Error> {
        self.to_threads()
    }

    fn take_accesses(&mut self) -> Vec<Access> {
        self.kernel().set.each()
    }

    fn hits(&mut self, variable: u32) -> Result<Hits, Error> {
        Ok(self.kernel().set.hits(variable)?)
    }

    /// Returns the cost of a hit, with the time of the BPF program.
    fn hit_cost(&mut self) -> Result<Cost, Error> {
        let set = &self.kernel().set;
        let times = set.times()?;
        let own = times.run_ns.checked_div(times.runs).unwrap_or(0) as f64;
        Ok(set.hit_cost().plus(Cost::between(own, own, own)))
    }

    fn ended_by(&mut self, _at: &Targets) -> Option<EndCause> {
        let has_execed = self.kernel().set.has_execed();
        has_execed.then_some(EndCause::Exec)
    }

    fn stop(&mut self, _at: &Targets, _target: &mut Target) {
        let kernel = self.kernel();
        // After an error the accounting is incomplete, but the hits were counted.
        if let Ok(unreserved) = kernel.set.follow_births() {
            kernel.unreserved = unreserved;
        }
        kernel.set.stop();
    }

    fn reservations(&mut self, _at: &Targets) -> Result<Vec<Reservations>, Error> {
        let kernel = self.kernel();
        let stats = kernel.set.reservations()?;
        Ok(reservations(stats, kernel.unreserved.registers))
    }

    fn report(&mut self, _at: &Targets) -> Result<BreakpointReport, Error> {
        let attached = self.attached();
        let KernelBreakpoints {
            set, unreserved, ..
        } = self.kernel();
        Ok(BreakpointReport {
            via: Via::Kernel,
            form: placement(F::BY, attached),
            rows: set.read()?,
            drops: set.drops()?,
            missed: [0; 4],
            refused: unreserved.threads,
            foreign: set.foreign()?,
            sees_kernel: set.sees_kernel(),
        })
    }
}
