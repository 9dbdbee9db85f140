//! One traced process: its modules, its probes, and whether the agent or the kernel counts each.

use tiptoe_attach::inject::Masks;
use tiptoe_attach::resident::{AgentFile, agent_in};
use tiptoe_attach::{Attached, loader};
use tiptoe_event::Via;
use tiptoe_kernel::Step;
use tiptoe_session::{KernelNote, Note, ProcessNote};
use tiptoe_sys::host::attach_progress;
use tiptoe_sys::host::procfs::Process;

use crate::clock::RunClock;
use crate::error::{Error, Reason};
use crate::module::{Cache, Module};
use crate::planner::{self, Follow};
use crate::resolve::{self, Resolution};
use crate::ulocks::Names;
use crate::words::session_target;
use budget::CallBudget;
use contended_locks::LockWatch;
use end_reason::ReportedEnds;
use in_process::{AgentPresence, InProcess};
use scope_ports::ScopeWatch;
use space::ForkCounts;
use throttle::Uprobes;
use wait_sampling::Thinning;

mod arm;
mod broken_off;
mod budget;
mod calls;
mod confinement;
mod contended_locks;
mod costly_traps;
mod described_code;
mod end_reason;
mod enter;
mod foreign;
mod futexes;
mod guards;
mod in_process;
mod install;
mod kernel;
mod loaded_libraries;
mod meter;
mod patches;
mod plan;
mod process_kind;
mod reads;
mod records;
mod restore_outside;
mod scope_ports;
mod seen_waits;
mod space;
mod throttle;
mod wait_sampling;
mod watches;

pub use enter::{short_of_room, unpatchable};
pub use meter::WINDOW as TRAP_WINDOW;
pub use plan::Plan;
pub use reads::Reads;
pub use records::RecordedCall;
pub use watches::ArmedThreads;

/// The most toggles in one request to the agent.
const TOGGLES: u64 = 1000;

/// How one probe counts.
pub struct Counter {
    pub event: String,
    pub names: Vec<String>,
    pub notes: Vec<Note>,
    /// How many registers hold its parameters, if calls are recorded and it is known.
    pub parameters: Option<u8>,
    pub source: Source,
}

/// Where a count is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the slabs, at this slot. The site is patched with a permanent trap or with a jump.
    Agent {
        slot: u32,
        /// Every hit raises SIGTRAP.
        trap: bool,
        /// Which words follow the slot.
        follow: Follow,
    },
    Kernel(KernelUprobe),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KernelUprobe {
    pub index: usize,
    /// How the kernel executes the instruction there, which decides its price.
    pub step: Step,
}

/// What is not counted of a process, and what else the user must know.
#[derive(Default)]
pub struct Coverage {
    /// What is not counted: the event and the reason.
    pub refused: Vec<(String, Reason)>,
    pub notes: Vec<Note>,
    /// Why the agent did not enter, if it should have.
    left_out: Option<Reason>,
    /// How many functions are missing because the user broke the attach off.
    unattached: usize,
}

impl Coverage {
    pub fn note(&mut self, note: impl Into<Note>) {
        self.notes.push(note.into());
    }

    fn refuse(&mut self, refused: impl IntoIterator<Item = (String, Reason)>) {
        self.refused.extend(refused);
    }

    /// Returns an error that also says why the agent did not enter, if it should have.
    fn or_agent(&self, error: Error) -> Error {
        match self.left_out.clone() {
            Some(why) => Error::WithoutAgent {
                why,
                error: Box::new(error),
            },
            None => error,
        }
    }
}

pub struct Tracee {
    /// The process, with the agent in it.
    pub target: Attached,
    /// When counting began.
    pub since: RunClock,
    reported: ReportedEnds,
    /// What is counted.
    pub counters: Vec<Counter>,
    /// The functions that must enclose a hit, if the request has `--under`.
    pub gates: Vec<Counter>,
    pub coverage: Coverage,
    presence: AgentPresence,
    agent: InProcess,
    /// What the kernel counts where the agent does not.
    uprobes: Option<Uprobes>,
    pub locks: LockWatch,
    pub scopes: ScopeWatch,
    pub forks: ForkCounts,
}

/// Returns the note on a process that ended before tiptoe had attached to it.
pub fn ended_in_attach(target: &Attached) -> ProcessNote {
    let process = session_target(target);
    ProcessNote::EndedInAttach { process }
}

impl Tracee {
    fn new(target: Attached) -> Tracee {
        let process = target.process;
        Tracee {
            target,
            since: RunClock::start(),
            reported: ReportedEnds::default(),
            counters: Vec::new(),
            gates: Vec::new(),
            coverage: Coverage::default(),
            presence: AgentPresence::of(process),
            agent: InProcess::default(),
            uprobes: None,
            locks: LockWatch::default(),
            scopes: ScopeWatch::default(),
            forks: ForkCounts::default(),
        }
    }

    pub fn attach(pid: u32, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        process_kind::check(Process::new(pid)?)?;
        let mut tracee = Tracee::new(Attached::to(pid)?);
        match tracee.enter(plan, cache)? {
            None => Ok(tracee),
            Some((modules, error)) => tracee.leave_to_kernel(plan, &modules, error),
        }
    }

    /// Attaches to a command that already runs. If the command ends before that, nothing of it is counted.
    pub fn attach_late(target: Attached, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(target);
        let entered = tracee.enter(plan, cache);
        tracee.unless_ended(entered, plan, ProcessNote::EndedInDelay)
    }

    /// Returns a command's process after tiptoe entered it, or tried to. If the command has ended, nothing of it is
    /// counted, and `ended` says so.
    fn unless_ended(
        self,
        entered: Result<Option<(Vec<Module>, Error)>, Error>,
        plan: &Plan,
        ended: ProcessNote,
    ) -> Result<Tracee, Error> {
        match entered {
            Ok(None) => Ok(self),
            _ if self.target.has_failed_by_end() => Ok(Tracee::ended(self.target, ended)),
            Ok(Some((modules, error))) => self.leave_to_kernel(plan, &modules, error),
            Err(error) => Err(error),
        }
    }

    /// Returns a process of which nothing is counted, because it ended, as `note` says.
    pub fn ended(target: Attached, note: ProcessNote) -> Tracee {
        let mut tracee = Tracee::new(target);
        tracee.coverage.note(note);
        tracee.target.mark();
        tracee
    }

    /// Begins to count in a running process. If its agent fails, the kernel must count: returns the modules and the
    /// agent's error.
    fn enter(
        &mut self,
        plan: &Plan,
        cache: &mut Cache,
    ) -> Result<Option<(Vec<Module>, Error)>, Error> {
        let process = self.target.process;
        let pid = process.pid();
        let names = Names::of(process, cache)?;
        self.look_for_early_waits(plan, &names);
        let Names { modules, maps, .. } = names;
        broken_off::check()?;
        let resolved = plan.resolve(process, &modules, false)?;
        broken_off::check()?;
        let mut agent_refusal = self.rules_against_agent(plan, &maps, &modules);
        if plan.request.via != Via::Kernel && agent_refusal.is_none() {
            match self.bring_in(plan, &resolved, &modules) {
                Ok(link) => self.target.link = Some(link),
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
            self.leave_out(plan, Some(pid), why);
        }
        broken_off::check()?;
        match self.begin(plan, resolved, &modules) {
            Ok(()) => {
                self.note_broken_off();
                Ok(None)
            }
            Err(error) if attach_progress::is_broken_off() => Err(error),
            Err(error) => Ok(Some((modules, error))),
        }
    }

    /// Takes over a command that waits in the agent's constructor, and still waits afterwards. If the agent fails, the kernel
    /// counts.
    pub fn adopt(target: Attached, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(target);
        let ended = ended_in_attach(&tracee.target);
        let taken = tracee.take_over(plan, cache);
        tracee.unless_ended(taken, plan, ended)
    }

    /// Begins to count in a command that waits in the agent's constructor. Returns as [`Tracee::enter`] does.
    fn take_over(
        &mut self,
        plan: &Plan,
        cache: &mut Cache,
    ) -> Result<Option<(Vec<Module>, Error)>, Error> {
        let process = self.target.process;
        let maps = process.maps()?;
        if let Some(base) = agent_in(&maps) {
            // On failure the agent keeps the name under which it was loaded.
            let _ = loader::rename(
                process,
                base,
                base + AgentFile::parse(plan.request.agent)?.name,
            );
        }
        let modules = cache.modules(process, &maps)?;
        if let Some(name) = planner::replaces_block(&modules) {
            return Ok(Some((modules, Error::ReplacesBlock(name))));
        }
        let resolved = plan.resolve(process, &modules, true)?;
        let mut waiting = plan.probes.clone();
        waiting.retain(|probe| !resolved.met.iter().any(|met| met == probe.text));
        if let Err(error) = self.begin(plan, resolved, &modules) {
            return Ok(Some((modules, error)));
        }
        if !self.agent.later.watching {
            resolve::resolve(&waiting, plan.entries(), process, &modules, false)?;
        }
        let waiting = waiting.iter().map(|probe| probe.text.to_owned());
        self.agent.later.waiting = waiting.collect();
        if plan.locks() {
            // The command may have ended before tiptoe runs again. Then nothing could name its
            // locks.
            self.look_for_names(cache)?;
        }
        Ok(None)
    }

    /// Counts through the kernel, either on request or because the agent cannot enter, for the
    /// reason `left_out`. `pid` is for the note with that reason.
    pub fn kernel_only(
        target: Attached,
        modules: &[Module],
        plan: &Plan,
        pid: Option<u32>,
        left_out: Option<Reason>,
    ) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(target);
        if let Some(why) = left_out {
            tracee.leave_out(plan, pid, why);
        }
        let resolved = plan.resolve(tracee.target.process, modules, false)?;
        tracee.begin(plan, resolved, modules)?;
        Ok(tracee)
    }

    /// Records why the agent does not enter, with a note for the user unless locks are watched.
    fn leave_out(&mut self, plan: &Plan, pid: Option<u32>, why: Reason) {
        let note = KernelNote::Traces {
            pid,
            why: why.to_string(),
        };
        self.coverage.left_out = Some(why);
        self.coverage
            .notes
            .extend((!plan.locks()).then_some(note.into()));
    }

    /// Patches the probes that the agent can, opens the rest in the kernel, and starts the clock.
    fn begin(
        &mut self,
        plan: &Plan,
        resolved: Resolution,
        modules: &[Module],
    ) -> Result<(), Error> {
        let Resolution {
            mut probes,
            ifuncs,
            refused,
            notes,
            ..
        } = resolved;
        self.coverage.refuse(refused);
        self.coverage.notes.extend(notes);
        let used = self.target.fetch_total_cpu_time();
        self.agent.call_budget = CallBudget::of(plan, used);
        self.agent.thinning = Thinning::of(plan, used);
        let before = RunClock::start();
        if plan.request.calls.record && self.target.link.is_some() {
            self.agent.open_rings(plan);
        }
        let mut to_kernel: Vec<kernel::Candidate> = Vec::new();
        match self.target.link.take() {
            Some(link) => {
                let armed = self.arm(&link, plan, modules, &mut probes, ifuncs);
                self.target.link = Some(link);
                to_kernel.extend(armed?);
            }
            None => {
                let ifuncs = ifuncs.into_iter();
                let unresolved = ifuncs.map(|probe| (probe.event, Reason::ChoiceNeedsAgent));
                self.coverage.refuse(unresolved);
                to_kernel.extend(probes.into_iter().map(|probe| (probe, None).into()));
            }
        }
        self.read_parameters();
        self.charge_scopes(plan, modules)?;
        if attach_progress::is_broken_off() {
            self.coverage.unattached += to_kernel.len();
            to_kernel.clear();
        }
        if !to_kernel.is_empty() {
            let traps = self.count_in_kernel(plan, to_kernel)?;
            self.set_traps(traps)?;
            self.share_budget();
        }
        if plan.locks() && self.target.link.is_none() {
            self.watch_in_kernel(plan, modules)?;
        }
        // Calls are recorded while other probes are still being patched, and none may be earlier
        // than the start.
        self.since = if plan.request.calls.record {
            before
        } else {
            RunClock::start()
        };
        self.target.mark();
        Ok(())
    }

    /// Makes the agent count the open calls of ended threads as left. Must be called before the
    /// last reading.
    pub fn bury_dead_threads(&self) {
        if let Some(link) = &self.target.link
            && self.follows_calls()
            && self.presence.serves(&self.target)
        {
            // On failure these calls stay counted as inside.
            let _ = link.bury();
        }
    }

    /// Removes all jumps and traps and writes them again, `times` times.
    pub fn toggle(&self, times: u64, mut stop: impl FnMut() -> bool) -> Result<u64, Error> {
        let Some(link) = &self.target.link else {
            return Ok(0);
        };
        let addresses: Vec<u64> = self.agent.sites.iter().map(|site| site.address).collect();
        let mut done = 0;
        while done < times && !stop() {
            let some = (times - done).min(TOGGLES);
            link.toggle(&addresses, some)?;
            done += some;
        }
        Ok(done)
    }

    /// Removes everything from the process; the counts stay readable.
    pub fn detach(&self) -> Result<(), Error> {
        match &self.target.link {
            Some(link) if self.presence.serves(&self.target) => {
                let masks = self.presence.masks_now(self.target.process, link);
                let detached = link.detach(|settle| {
                    let still = |masks: Masks| masks.give_back(|| link.while_still(&mut *settle));
                    if masks.map(still).is_none_or(|done| done.is_err()) {
                        // Threads cannot be stopped, so their blocked signals are not restored.
                        settle();
                    }
                });
                Ok(detached?)
            }
            _ => Ok(()),
        }
    }
}
