//! The processes of a run.

use std::time::Duration;

use tiptoe_attach::ready::CountedProcess;
use tiptoe_attach::{AttachError, Attached};
use tiptoe_session::Process;
use tiptoe_sys::host::ends::Ends;
use tiptoe_sys::host::limits;

/// The processes of a run. A command among them is held until the run releases it.
#[derive(Default)]
pub(crate) struct Targets {
    /// Those that are counted; none for the whole system.
    pub(crate) counted: Vec<Attached>,
    /// A command that is not counted: the others are counted until it ends.
    pub(crate) meanwhile: Option<Attached>,
}

impl Targets {
    /// Returns running processes.
    pub(crate) fn running(pids: &[u32]) -> Result<Targets, AttachError> {
        let counted = pids.iter().map(|pid| Attached::to(*pid));
        Ok(Targets::of(counted.collect::<Result<_, _>>()?))
    }

    /// Returns processes that are counted.
    pub(crate) fn of(counted: Vec<Attached>) -> Targets {
        let meanwhile = None;
        Targets { counted, meanwhile }
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Attached> {
        self.counted.iter_mut().chain(&mut self.meanwhile)
    }

    /// Lets a held command begin.
    pub(crate) fn release(&mut self) -> Result<(), AttachError> {
        self.iter_mut().try_for_each(Attached::release)
    }

    pub(crate) fn names(&self) -> Vec<CountedProcess> {
        self.counted.iter().map(Attached::counted).collect()
    }

    /// Returns those whose end ends the run; none if only the user or the duration does.
    fn ending(&self) -> &[Attached] {
        let meanwhile = self.meanwhile.as_ref();
        meanwhile.map_or(&self.counted, std::slice::from_ref)
    }

    /// Returns whether nothing is left to count.
    pub(crate) fn have_ended(&self) -> bool {
        let ending = self.ending();
        !ending.is_empty() && ending.iter().all(Attached::has_ended)
    }

    /// Returns what wakes the loop when one of them ends.
    pub(crate) fn ends(&self) -> Ends {
        let ending = self.ending().iter();
        // A process without a descriptor is looked at, less often.
        let _ = limits::reserve_open_files(ending.len() as u64);
        Ends::of(ending.map(|target| target.process.pid()))
    }

    /// Reads the CPU time of each.
    pub(crate) fn fetch_cpu_times(&self) {
        self.counted.iter().for_each(|target| {
            target.fetch_cpu_time();
        });
    }

    /// Returns the number of CPUs that are counted, if it is the whole system.
    pub(crate) fn cpus(&self) -> Option<u32> {
        self.counted.is_empty().then(limits::online_cpus)
    }

    /// Returns the CPU time that they have used, as of the last reading; that of all CPUs for the whole system.
    pub(crate) fn cpu_ns(&self, elapsed: Duration) -> u64 {
        match self.cpus() {
            Some(cpus) => (elapsed.as_nanos() as u64).saturating_mul(u64::from(cpus)),
            None => {
                let times = self.counted.iter().map(Attached::cpu_time);
                times.sum::<Duration>().as_nanos() as u64
            }
        }
    }
}

/// Returns a target in a session's form.
pub(crate) fn session_target(target: &Attached) -> Process {
    let (pid, comm) = target.counted();
    Process {
        pid,
        comm,
        address_space: None,
    }
}
