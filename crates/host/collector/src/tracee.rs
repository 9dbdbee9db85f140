//! One traced process, in three parts: the attached process ([`process`]), what the agent (tiptoe's library in the
//! process) counts ([`agent`]), and what the kernel counts instead ([`kernel`]). The agent and the kernel record
//! waits for locks ([`contended_locks`]) and events in scopes, named parts of a run ([`scope_ports`]).

use tiptoe_attach::Attached;
use tiptoe_attach::doorbell::Bell;
use tiptoe_event::Via;
use tiptoe_session::{EndCause, Note, ProcessNote};
use tiptoe_sys::host::attach_progress;
use tiptoe_sys::host::procfs::Process;
use tiptoe_wire::State;

use crate::clock::RunClock;
use crate::error::{Error, Reason};
use crate::module::{Cache, Module};
use crate::planner;
use crate::request::Split;
use crate::resolve::{self, Resolution};
use crate::ulocks::Names;
use crate::words::session_target;
use agent::{Arming, FirstHooks, InProcess, Patches, PlanState, came_and_went, library};
use agent::{costly_traps, described_code, ifuncs};
use candidate::{Candidate, against, refusals, step_at};
use contended_locks::LockWatch;
use coverage::{Coverage, check_broken_off};
use kernel::{KernelOpening, KernelProbes};
use plan::INITIAL_CREDIT;
use process::{TracedProcess, TrapFreeProcess, process_kind};
use scope_ports::{ScopeWatch, find_ports};

mod agent;
mod arm;
mod candidate;
mod contended_locks;
mod counter;
mod coverage;
mod kernel;
mod loaded_libraries;
mod plan;
mod process;
mod scope_ports;

pub use agent::{PATIENCE, Reads, RecordedCall, TRAP_WINDOW};
pub use contended_locks::START_PAUSE;
pub use counter::{Counter, Source};
pub use plan::Plan;
pub use process::{ArmedThreads, short_of_room, unpatchable};
pub use scope_ports::{scope_names, scope_times};

pub struct Tracee {
    pub process: TracedProcess,
    pub agent: InProcess,
    pub kernel: KernelProbes,
    pub locks: LockWatch,
    pub scopes: ScopeWatch,
    pub coverage: Coverage,
}

struct AgentFailure {
    modules: Vec<Module>,
    error: Error,
}

pub fn ended_in_attach(target: &Attached) -> ProcessNote {
    let process = session_target(target);
    ProcessNote::EndedInAttach { process }
}

impl Tracee {
    fn new(target: Attached) -> Tracee {
        Tracee {
            process: TracedProcess::new(target),
            agent: InProcess::default(),
            kernel: KernelProbes::default(),
            locks: LockWatch::default(),
            scopes: ScopeWatch::default(),
            coverage: Coverage::default(),
        }
    }

    pub fn attach(pid: u32, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        process_kind::check(Process::new(pid)?)?;
        let mut tracee = Tracee::new(Attached::to(pid)?);
        match tracee.enter(plan, cache)? {
            None => Ok(tracee),
            Some(failure) => tracee.leave_to_kernel(plan, failure),
        }
    }

    /// If the command has ended, nothing is counted.
    pub fn attach_late(target: Attached, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(target);
        let entered = tracee.enter(plan, cache);
        tracee.unless_ended(entered, plan, ProcessNote::EndedInDelay)
    }

    /// Lets the kernel count the command if the agent failed. If the command has ended, nothing is counted, and
    /// `ended` is reported.
    fn unless_ended(
        self,
        entered: Result<Option<AgentFailure>, Error>,
        plan: &Plan,
        ended: ProcessNote,
    ) -> Result<Tracee, Error> {
        match entered {
            Ok(None) => Ok(self),
            _ if self.process.target.has_failed_by_end() => {
                Ok(Tracee::ended(self.process.target, ended))
            }
            Ok(Some(failure)) => self.leave_to_kernel(plan, failure),
            Err(error) => Err(error),
        }
    }

    pub fn ended(target: Attached, note: ProcessNote) -> Tracee {
        let mut tracee = Tracee::new(target);
        tracee.coverage.note(note);
        tracee.process.target.mark();
        tracee
    }

    /// Returns the agent's failure, after which the kernel must count.
    fn enter(&mut self, plan: &Plan, cache: &mut Cache) -> Result<Option<AgentFailure>, Error> {
        let process = self.process.target.process;
        let pid = process.pid();
        let names = Names::of(process, cache)?;
        self.locks.look_for_early_waits(&self.process, plan, &names);
        let Names { modules, maps, .. } = names;
        check_broken_off()?;
        let resolved = plan.resolve(process, &modules, false)?;
        check_broken_off()?;
        let mut agent_refusal = self.process.rules_against_agent(plan, &maps, &modules);
        if plan.request.via != Via::Kernel && agent_refusal.is_none() {
            match self.process.bring_in(plan, &resolved, &modules) {
                Ok(link) => self.process.target.link = Some(link),
                Err(error) if attach_progress::is_broken_off() => return Err(error),
                Err(error) if plan.request.via == Via::Agent => return Err(error),
                Err(error) => agent_refusal = Some(error.into()),
            }
        }
        if let Some(why) = agent_refusal {
            if plan.request.via == Via::Agent {
                return Err(Error::AgentKeptOut {
                    target: format!("process {pid}"),
                    why,
                    substitute: plan.agent_substitute(),
                });
            }
            self.coverage.leave_out(plan, Some(pid), why);
        }
        check_broken_off()?;
        match self.begin(plan, resolved, &modules) {
            Ok(()) => {
                let counted = self.counters().count();
                self.coverage.note_missing(&self.process.target, counted);
                Ok(None)
            }
            Err(error) if attach_progress::is_broken_off() => Err(error),
            Err(error) => Ok(Some(AgentFailure { modules, error })),
        }
    }

    /// Begins to count in a command that is held in the agent's constructor, and remains held.
    pub fn adopt(target: Attached, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(target);
        let ended = ended_in_attach(&tracee.process.target);
        let taken = tracee.take_over(plan, cache);
        tracee.unless_ended(taken, plan, ended)
    }

    fn take_over(&mut self, plan: &Plan, cache: &mut Cache) -> Result<Option<AgentFailure>, Error> {
        let process = self.process.target.process;
        let maps = process.maps()?;
        self.process.rename_agent(plan, &maps)?;
        let modules = cache.modules(process, &maps)?;
        if let Some(name) = planner::replaces_block(&modules) {
            let error = Error::ReplacesBlock(name);
            return Ok(Some(AgentFailure { modules, error }));
        }
        let resolved = plan.resolve(process, &modules, true)?;
        let mut waiting = plan.probes.clone();
        waiting.retain(|probe| !resolved.met.iter().any(|met| met == probe.text));
        if let Err(error) = self.begin(plan, resolved, &modules) {
            return Ok(Some(AgentFailure { modules, error }));
        }
        let later = &mut self.agent.patches.later;
        if !later.watching {
            resolve::resolve(&waiting, plan.entries(), process, &modules, false)?;
        }
        let waiting = waiting.iter().map(|probe| probe.text.to_owned());
        later.waiting = waiting.collect();
        if plan.locks() {
            // Names must be read now, because the command may end before tiptoe runs again.
            self.look_for_names(cache)?;
        }
        Ok(None)
    }

    /// `left_out` is why the agent cannot enter; `None` if the request excludes the agent.
    pub fn kernel_only(
        target: Attached,
        modules: &[Module],
        plan: &Plan,
        pid: Option<u32>,
        left_out: Option<Reason>,
    ) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(target);
        if let Some(why) = left_out {
            tracee.coverage.leave_out(plan, pid, why);
        }
        let resolved = plan.resolve(tracee.process.target.process, modules, false)?;
        tracee.begin(plan, resolved, modules)?;
        Ok(tracee)
    }

    /// Lets the agent patch all probes that it can, opens the other probes in the kernel, and starts the clock.
    fn begin(&mut self, plan: &Plan, found: Resolution, modules: &[Module]) -> Result<(), Error> {
        let Resolution {
            mut probes,
            ifuncs,
            refused,
            notes,
            ..
        } = found;
        self.coverage.refuse(refused);
        self.coverage.notes.extend(notes);
        let used = self.process.target.fetch_total_cpu_time();
        self.agent.begin_budget(plan, used);
        let before = RunClock::start();
        let has_agent = self.process.target.link.is_some();
        if plan.request.calls.record && has_agent {
            self.agent.open_rings(plan);
        }
        let mut to_kernel = if has_agent {
            self.arm(plan, modules, &mut probes, ifuncs)?
        } else {
            let ifuncs = ifuncs.into_iter();
            let unresolved = ifuncs.map(|probe| (probe.event, Reason::ChoiceNeedsAgent));
            self.coverage.refuse(unresolved);
            let probes = probes.into_iter();
            probes.map(|probe| Candidate::new(probe, None)).collect()
        };
        self.agent.patches.read_parameters();
        self.scopes
            .begin(&self.process, plan, modules, &mut self.coverage)?;
        if attach_progress::is_broken_off() {
            self.coverage.unattached += to_kernel.len();
            to_kernel.clear();
        }
        if !to_kernel.is_empty() {
            self.count_in_kernel(plan, to_kernel)?;
        }
        if plan.locks() && !has_agent {
            self.locks
                .watch_in_kernel(&self.process, plan, modules, &self.coverage)?;
        }
        // Calls are already recorded while other probes are being patched, and no call may be earlier than the clock's
        // start.
        self.process.since = if plan.request.calls.record {
            before
        } else {
            RunClock::start()
        };
        self.process.target.mark();
        Ok(())
    }

    /// Counts probes in the kernel.
    fn count_in_kernel(&mut self, plan: &Plan, probes: Vec<Candidate>) -> Result<(), Error> {
        let mut opening = KernelOpening {
            plan,
            process: &self.process,
            patches: &self.agent.patches,
            coverage: &mut self.coverage,
            kernel: &mut self.kernel,
        };
        let traps = opening.open(probes)?;
        if !traps.is_empty() {
            let on = &mut Arming::of(&self.process, plan, &mut self.coverage)?;
            self.agent.patches.set_traps(on, traps)?;
        }
        if self.agent.spends() && self.kernel.halve_budget() {
            self.agent.halve_budget();
        }
        Ok(())
    }

    /// Returns the agent's error if the kernel cannot serve the request, or the agent has not restored the program.
    fn leave_to_kernel(self, plan: &Plan, failure: AgentFailure) -> Result<Tracee, Error> {
        let AgentFailure { modules, error } = failure;
        let may = plan.request.via != Via::Agent
            && plan.against_kernel().is_none()
            && plan.hold().is_none();
        let link = self.process.target.link.as_ref().filter(|_| may);
        let has_left = link.is_some_and(|link| {
            self.process.detach().is_ok() && link.data().state() == State::Dormant
        });
        if !has_left {
            return Err(error);
        }
        let mut target = self.process.target;
        target.retire_agent();
        let pid = Some(target.process.pid());
        Tracee::kernel_only(target, &modules, plan, pid, Some(error.into()))
    }

    /// Returns what the agent counts, then what the kernel counts.
    pub fn counters(&self) -> impl Iterator<Item = (&Counter, Source)> + Clone {
        let agents = self.agent.patches.counters.iter();
        let agents = agents.map(|one| (&one.counter, one.source()));
        let kernels = self.kernel.counters.iter();
        agents.chain(kernels.map(|one| (&one.counter, Source::Kernel(one.step))))
    }

    pub fn read(&self, by: Option<Split>, clock: RunClock) -> Result<Reads, Error> {
        let kernel = self.kernel.read()?;
        let mut reads = self.agent.read(&self.process, by, clock)?;
        reads.add_unsplit(kernel);
        Ok(reads)
    }

    pub fn has_budget(&self) -> bool {
        self.agent.has_budget(&self.process) || self.kernel.is_throttled()
    }

    pub fn look_for_names(&mut self, cache: &mut Cache) -> Result<(), Error> {
        let sites = &self.agent.patches.later.agent_sites;
        self.locks.look_for_names(&self.process, sites, cache)
    }

    pub fn bell(&self) -> Option<Bell<'_>> {
        self.agent.patches.later.bell(&self.process)
    }

    pub fn ended_by(&self) -> Option<EndCause> {
        match self.locks.has_left_kernel() {
            true => Some(EndCause::Exec),
            false => self.process.ended_by(&self.agent.patches.later.agent_sites),
        }
    }

    /// Returns a note at the end if another tracer's probe was removed from code that tiptoe patched, or if the
    /// kernel continued to count after an exec.
    pub fn came_and_went(&self) -> Option<Note> {
        match &self.process.target.link {
            Some(link) => came_and_went(link, self.process.target.process),
            None => self.kernel.went_on(&self.process.target),
        }
    }
}
