//! The processes of a run.

use std::time::Duration;

use tiptoe_attach::doorbell::Bell;
use tiptoe_attach::ready::CountedProcess;
use tiptoe_attach::{AttachError, Attached};
use tiptoe_sys::host::ends::Ends;
use tiptoe_sys::host::limits;

use crate::clock::RunClock;
use crate::error::Error;
use crate::request::{Request, RequestTarget};
use crate::tracee::Tracee;

/// A CPU time may be as old as this part of the run, or [`SOON`].
const STALE: u32 = 20;
const SOON: Duration = Duration::from_millis(1);

/// A command is started *held*: it does not run before [`Targets::release`].
#[derive(Default)]
pub(crate) struct Targets {
    /// Counted processes without an agent.
    pub(crate) alone: Vec<Attached>,
    /// Counted processes that may have an agent (tiptoe's library).
    pub(crate) traced: Vec<Tracee>,
    /// A command that is not counted, but whose end ends the run.
    pub(crate) meanwhile: Option<Attached>,
    pub(crate) is_system: bool,
}

impl Targets {
    /// Starts the request's command, which is held. `refused` makes the error of a failed attach.
    pub(crate) fn of_request(
        request: &Request<'_>,
        refused: fn(AttachError) -> Error,
    ) -> Result<Targets, Error> {
        let meanwhile = || {
            let command = request.meanwhile.as_deref().map(Attached::start_alone);
            command.transpose()
        };
        Ok(match &request.target {
            RequestTarget::Command(command) => Targets::of(vec![request.start_alone(command)?]),
            RequestTarget::Pids(pids) => Targets {
                meanwhile: meanwhile()?,
                ..Targets::running(pids).map_err(refused)?
            },
            RequestTarget::System => Targets {
                meanwhile: meanwhile()?,
                ..Targets::system()
            },
        })
    }

    pub(crate) fn running(pids: &[u32]) -> Result<Targets, AttachError> {
        let alone = pids.iter().map(|pid| Attached::to(*pid));
        Ok(Targets::of(alone.collect::<Result<_, _>>()?))
    }

    pub(crate) fn of(alone: Vec<Attached>) -> Targets {
        Targets {
            alone,
            ..Targets::default()
        }
    }

    pub(crate) fn traced(traced: Vec<Tracee>) -> Targets {
        Targets {
            traced,
            ..Targets::default()
        }
    }

    pub(crate) fn system() -> Targets {
        Targets {
            is_system: true,
            ..Targets::default()
        }
    }

    pub(crate) fn counted(&self) -> impl Iterator<Item = &Attached> {
        let traced = self.traced.iter().map(|tracee| &tracee.process.target);
        self.alone.iter().chain(traced)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Attached> {
        let traced = self
            .traced
            .iter_mut()
            .map(|tracee| &mut tracee.process.target);
        let counted = self.alone.iter_mut().chain(traced);
        counted.chain(&mut self.meanwhile)
    }

    /// Starts the count of the processes' CPU time, and the run's clock.
    pub(crate) fn start_clock(&self) -> RunClock {
        self.counted().for_each(Attached::mark);
        RunClock::start()
    }

    pub(crate) fn release(&mut self) -> Result<(), AttachError> {
        self.iter_mut().try_for_each(Attached::release)
    }

    pub(crate) fn names(&self) -> Vec<CountedProcess> {
        self.counted().map(Attached::counted).collect()
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        let pids = self.counted().map(|target| target.process.pid());
        pids.collect()
    }

    /// Returns the processes whose end ends the run.
    fn ending(&self) -> impl Iterator<Item = &Attached> {
        let meanwhile = self.meanwhile.iter();
        let counted = self.counted().filter(|_| self.meanwhile.is_none());
        meanwhile.chain(counted)
    }

    pub(crate) fn have_ended(&self) -> bool {
        let mut ending = self.ending().peekable();
        ending.peek().is_some() && ending.all(Attached::has_ended)
    }

    pub(super) fn bells(&self) -> impl Iterator<Item = Bell<'_>> {
        self.traced.iter().filter_map(Tracee::bell)
    }

    pub(crate) fn ends(&self) -> Ends {
        // If this fails and descriptors run out, some ends of processes do not end the loop's wait. The loop
        // sees them after the wait.
        let _ = limits::reserve_open_files(self.ending().count() as u64);
        Ends::of(self.ending().map(|target| target.process.pid()))
    }

    pub(crate) fn fetch_cpu_times(&self) {
        self.counted().for_each(|target| {
            target.fetch_cpu_time();
        });
    }

    /// Reads CPU times that may be lost at any moment. Returns the pause before the next call, so that a lost time is at
    /// most 1/[`STALE`] of the run old.
    pub(super) fn keep_cpu_times(&self, elapsed: Duration) -> Duration {
        let mut pause = Duration::MAX;
        for target in self.counted().filter(|target| target.is_descendant()) {
            target.fetch_cpu_time();
            pause = (elapsed / STALE).max(SOON);
        }
        pause
    }

    pub(crate) fn cpus(&self) -> Option<u32> {
        self.is_system.then(limits::online_cpus)
    }

    /// Returns the targets' CPU time as last read; for the whole system, the time of all CPUs.
    pub(crate) fn cpu_ns(&self, elapsed: Duration) -> u64 {
        match self.cpus() {
            Some(cpus) => (elapsed.as_nanos() as u64).saturating_mul(u64::from(cpus)),
            None => {
                let times = self.counted().map(Attached::cpu_time);
                times.sum::<Duration>().as_nanos() as u64
            }
        }
    }
}
