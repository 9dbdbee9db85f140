//! One traced process: its modules, its probes, and whether the agent or the kernel counts each.

use std::cell::{Cell, OnceCell, RefCell};

use tiptoe_attach::inject::Masks;
use tiptoe_attach::resident::{AgentFile, agent_in};
use tiptoe_attach::{Attached, loader};
use tiptoe_event::Via;
use tiptoe_kernel::{Scopes, Step, UprobeSet};
use tiptoe_session::{KernelNote, Note};
use tiptoe_sys::host::attach_progress;
use tiptoe_sys::host::procfs::{Process, RunningProgram};
use tiptoe_wire::{LeaveReason, Site};

use crate::drive::RunClock;
use crate::forks::CopiedMemory;
use crate::module::{Cache, FileKey, Module};
use crate::planner::{self, Follow};
use crate::request::Error;
use crate::resolve::{self, Resolution};
use crate::ulocks::Names;
use loaded_libraries::PlanState;

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

pub struct Tracee {
    /// The process, with the agent in it.
    pub target: Attached,
    /// The program that it ran when it was attached, so that an exec can be detected.
    program: RunningProgram,
    /// What is counted.
    pub counters: Vec<Counter>,
    /// The functions that must enclose a hit, if the request has `--under`.
    pub gates: Vec<Counter>,
    /// What is not counted: the event and the reason.
    pub refused: Vec<(String, String)>,
    pub notes: Vec<Note>,
    /// Why the agent did not enter, if it should have.
    left_out: Option<String>,
    /// When counting began.
    pub since: RunClock,
    kernel: Option<UprobeSet>,
    /// Keeps the cost of the kernel's probes within the budget.
    throttle: Option<throttle::Throttle>,
    /// Whether any of the kernel's probes was ever closed to keep the budget.
    is_throttled: bool,
    agent_thread: Option<u32>,
    /// The signals that the agent owns, and where it records the threads that block them.
    masks: Option<Masks>,
    /// Set if no trap byte may be written in the process, because threads may block SIGTRAP unseen.
    quiet: Option<guards::TrapFreeProcess>,
    /// Why threads may block signals without passing a hook; computed at first use.
    unseen: OnceCell<Option<String>>,
    /// Why the agent was asked to leave, or left by itself.
    left: Cell<Option<LeaveReason>>,
    confinement: confinement::Confinement,
    /// The armed sites except hooks. Site N belongs to counter N.
    sites: Vec<Site>,
    /// The file of each of these sites.
    files: Vec<FileKey>,
    /// State for libraries that are loaded later.
    later: PlanState,
    /// The addresses of the agent's hooks.
    hooks: Vec<u64>,
    /// Measures how often the agent's traps are hit.
    meters: RefCell<meter::Meters>,
    is_end_reported: Cell<bool>,
    call_budget: Option<budget::CallBudget>,
    /// Decides how many waits for locks are timed.
    thinning: Option<wait_sampling::Thinning>,
    rings: RefCell<Option<records::Rings>>,
    unread: Vec<records::UnreadFunction>,
    watched_locks: contended_locks::LockWatch,
    /// A library in it reports scopes.
    has_ports: bool,
    charging: Option<Scopes>,
    /// The part of tiptoe's memory that its forks copy, as of the last look.
    copied: RefCell<Option<CopiedMemory>>,
    /// How often `look_at_copied` was called.
    looks: Cell<u32>,
    /// The number of its forks before counting began.
    early_forks: Cell<u64>,
    /// How many functions are missing because the user broke the attach off.
    unattached: usize,
}

impl Tracee {
    fn new(target: Attached) -> Tracee {
        let process = target.process;
        Tracee {
            target,
            program: process.running_program().unwrap_or_default(),
            counters: Vec::new(),
            gates: Vec::new(),
            refused: Vec::new(),
            notes: Vec::new(),
            left_out: None,
            since: RunClock::start(),
            kernel: None,
            throttle: None,
            is_throttled: false,
            agent_thread: None,
            masks: None,
            quiet: None,
            unseen: OnceCell::new(),
            left: Cell::new(None),
            confinement: confinement::Confinement::of(process),
            sites: Vec::new(),
            files: Vec::new(),
            later: PlanState::default(),
            hooks: Vec::new(),
            meters: RefCell::default(),
            is_end_reported: Cell::new(false),
            call_budget: None,
            thinning: None,
            rings: RefCell::default(),
            unread: Vec::new(),
            watched_locks: contended_locks::LockWatch::default(),
            has_ports: false,
            charging: None,
            copied: RefCell::default(),
            looks: Cell::new(0),
            early_forks: Cell::new(0),
            unattached: 0,
        }
    }

    /// Returns why threads may block signals without passing a hook ([`planner::blocks_signals`]);
    /// `None` if they cannot.
    fn unseen(&self, modules: &[Module]) -> Option<&str> {
        self.unseen
            .get_or_init(|| planner::blocks_signals(modules))
            .as_deref()
    }

    pub fn attach(pid: u32, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let process = Process::new(pid)?;
        process_kind::check(process)?;
        let mut tracee = Tracee::new(Attached::to(pid)?);
        let names = Names::of(process, cache)?;
        tracee.look_for_early_waits(plan, &names);
        let Names { modules, maps, .. } = names;
        broken_off::check()?;
        let resolved = plan.resolve(process, &modules)?;
        broken_off::check()?;
        let mut agent_refusal = tracee.rules_against_agent(plan, &maps, &modules);
        if plan.via != Via::Kernel && agent_refusal.is_none() {
            match tracee.bring_in(plan, &resolved, &modules) {
                Ok(link) => tracee.target.link = Some(link),
                Err(error) if attach_progress::is_broken_off() => return Err(error),
                Err(error) if plan.via == Via::Agent => return Err(error),
                Err(error) => agent_refusal = Some(error.to_string()),
            }
        }
        if let Some(reason) = &agent_refusal {
            if plan.via == Via::Agent {
                return Err(
                    Error::new(format!("the agent cannot enter process {pid}: {reason}"))
                        .with_hint(plan.instead_of_agent()),
                );
            }
            tracee.leave_out(plan, Some(pid), reason);
        }
        broken_off::check()?;
        match tracee.begin(plan, resolved, &modules) {
            Ok(()) => {
                tracee.note_broken_off();
                Ok(tracee)
            }
            Err(error) if attach_progress::is_broken_off() => Err(error),
            Err(error) => tracee.leave_to_kernel(plan, &modules, error),
        }
    }

    /// Takes over a command that waits in the agent's constructor, and still waits afterwards. If the agent fails, the kernel
    /// counts.
    pub fn adopt(target: Attached, plan: &Plan, cache: &mut Cache) -> Result<Tracee, Error> {
        let process = target.process;
        let mut tracee = Tracee::new(target);
        let maps = process.maps()?;
        if let Some(base) = agent_in(&maps) {
            // On failure the agent keeps the name under which it was loaded.
            let _ = loader::rename(process, base, base + AgentFile::parse(plan.agent)?.name);
        }
        let modules = cache.modules(process, &maps)?;
        if let Some(reason) = planner::replaces_block(&modules) {
            return tracee.leave_to_kernel(plan, &modules, Error::new(reason));
        }
        let resolved = plan.resolve_or_wait(process, &modules)?;
        let mut waiting = plan.specs.to_vec();
        waiting.retain(|spec| !resolved.met.contains(spec));
        if let Err(error) = tracee.begin(plan, resolved, &modules) {
            return tracee.leave_to_kernel(plan, &modules, error);
        }
        if !tracee.later.watching {
            resolve::resolve(&waiting, plan.entries(), process, &modules, false)?;
        }
        tracee.later.waiting = waiting;
        if plan.locks {
            // The command may have ended before tiptoe runs again. Then nothing could name its
            // locks.
            tracee.look_for_names(cache)?;
        }
        Ok(tracee)
    }

    /// Counts through the kernel, either on request or because the agent cannot enter, for the
    /// reason `left_out`. `pid` is for the note with that reason.
    pub fn kernel_only(
        target: Attached,
        modules: &[Module],
        plan: &Plan,
        pid: Option<u32>,
        left_out: Option<&str>,
    ) -> Result<Tracee, Error> {
        let mut tracee = Tracee::new(target);
        if let Some(reason) = left_out {
            tracee.leave_out(plan, pid, reason);
        }
        let resolved = plan.resolve(tracee.target.process, modules)?;
        tracee.begin(plan, resolved, modules)?;
        Ok(tracee)
    }

    /// Records why the agent does not enter, with a note for the user unless locks are watched.
    fn leave_out(&mut self, plan: &Plan, pid: Option<u32>, reason: &str) {
        let why = reason.to_owned();
        self.left_out = Some(why.clone());
        let note = KernelNote::Traces { pid, why };
        self.notes.extend((!plan.locks).then_some(note.into()));
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
        self.refused.extend(refused);
        self.notes.extend(notes);
        let used = self.target.fetch_total_cpu_time();
        self.call_budget = budget::CallBudget::of(plan, used);
        self.thinning = wait_sampling::Thinning::of(plan, used);
        let before = RunClock::start();
        self.open_rings(plan);
        let mut to_kernel: Vec<kernel::Candidate> = Vec::new();
        match self.target.link.take() {
            Some(link) => {
                let armed = self.arm(&link, plan, modules, &mut probes, ifuncs);
                self.target.link = Some(link);
                to_kernel.extend(armed?);
            }
            None => {
                let unresolved = ifuncs.into_iter().map(|probe| {
                    (
                        probe.event,
                        "which implementation it chose is known only to the agent",
                    )
                });
                self.refused
                    .extend(unresolved.map(|(event, why)| (event, why.to_owned())));
                to_kernel.extend(probes.into_iter().map(|probe| (probe, None).into()));
            }
        }
        self.read_parameters();
        self.charge_scopes(plan, modules)?;
        if attach_progress::is_broken_off() {
            self.unattached += to_kernel.len();
            to_kernel.clear();
        }
        if !to_kernel.is_empty() {
            let traps = self.count_in_kernel(plan, to_kernel)?;
            self.set_traps(traps)?;
            self.share_budget();
        }
        if plan.locks && self.target.link.is_none() {
            self.watch_in_kernel(plan, modules)?;
        }
        // Calls are recorded while other probes are still being patched, and none may be earlier
        // than the start.
        self.since = if plan.record {
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
            && !(self.left.get().is_some() || self.target.has_ended() || self.has_execed())
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
        let addresses: Vec<u64> = self.sites.iter().map(|site| site.address).collect();
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
            Some(link)
                if self.left.get().is_none() && !self.target.has_ended() && !self.has_execed() =>
            {
                let masks = self.masks_now(link);
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
