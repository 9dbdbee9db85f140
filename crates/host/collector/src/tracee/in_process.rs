//! What the agent counts in a process, and the agent's presence there.

use std::cell::{Cell, OnceCell, RefCell};

use tiptoe_attach::Attached;
use tiptoe_attach::inject::Masks;
use tiptoe_attach::link::Link;
use tiptoe_attach::resident::{agent_in, agent_thread};
use tiptoe_sys::host::procfs::{Process, RunningProgram};
use tiptoe_wire::{LeaveReason, Site};

use super::budget::CallBudget;
use super::confinement::Confinement;
use super::guards::TrapFreeProcess;
use super::loaded_libraries::PlanState;
use super::meter::Meters;
use super::records::{Rings, UnreadFunction};
use super::wait_sampling::Thinning;
use crate::error::Error;
use crate::error::Reason;
use crate::module::{FileKey, Module};
use crate::planner;

/// What the agent counts.
#[derive(Default)]
pub(super) struct InProcess {
    /// The armed sites except hooks. Site N belongs to counter N.
    pub(super) sites: Vec<Site>,
    /// The file of each of these sites.
    pub(super) files: Vec<FileKey>,
    /// State for libraries that are loaded later.
    pub(super) later: PlanState,
    /// The addresses of the agent's hooks.
    pub(super) hooks: Vec<u64>,
    /// Measures how often the agent's traps are hit.
    pub(super) meters: RefCell<Meters>,
    pub(super) call_budget: Option<CallBudget>,
    /// Decides how many waits for locks are timed.
    pub(super) thinning: Option<Thinning>,
    pub(super) rings: RefCell<Option<Rings>>,
    /// The functions whose parameters were not looked up yet.
    pub(super) unread: Vec<UnreadFunction>,
}

/// The agent's thread, and what keeps it from harming the program.
pub(super) struct AgentPresence {
    /// The program that ran when the process was attached, so that an exec can be detected.
    pub(super) program: RunningProgram,
    pub(super) thread: Option<u32>,
    /// The signals that the agent owns, and where it records the threads that block them.
    pub(super) masks: Option<Masks>,
    /// Set if no trap byte may be written in the process, because threads may block SIGTRAP unseen.
    pub(super) quiet: Option<TrapFreeProcess>,
    /// Why threads may block signals without passing a hook; computed at first use.
    unseen: OnceCell<Option<Reason>>,
    /// Why the agent was asked to leave, or left by itself.
    pub(super) left: Cell<Option<LeaveReason>>,
    pub(super) confinement: Confinement,
}

impl AgentPresence {
    /// Returns the state for a process that the agent has not entered yet.
    pub(super) fn of(process: Process) -> AgentPresence {
        AgentPresence {
            program: process.running_program().unwrap_or_default(),
            thread: None,
            masks: None,
            quiet: None,
            unseen: OnceCell::new(),
            left: Cell::new(None),
            confinement: Confinement::of(process),
        }
    }

    /// Returns why threads may block signals without passing a hook ([`planner::blocks_signals`]);
    /// `None` if they cannot.
    pub(super) fn unseen(&self, modules: &[Module]) -> Option<&Reason> {
        self.unseen
            .get_or_init(|| planner::blocks_signals(modules))
            .as_ref()
    }

    /// Returns whether the process runs another program than the traced one. An exec ends the
    /// agent's thread and removes its memory. So does an exit, but it leaves no memory at all. The
    /// maps are read twice, because a reading that races with the removal may be incomplete.
    pub(super) fn has_execed(&self, target: &Attached) -> bool {
        let Some(tid) = self.thread else {
            return false;
        };
        let thread = format!("/proc/{}/task/{tid}", target.process.pid());
        let another = || match target.process.maps() {
            Ok(maps) => !maps.is_empty() && agent_in(&maps).is_none(),
            Err(_) => !target.has_ended(),
        };
        !std::path::Path::new(&thread).exists() && another() && another()
    }

    /// Returns whether the agent can still answer.
    pub(super) fn serves(&self, target: &Attached) -> bool {
        self.left.get().is_none() && !target.has_ended() && !self.has_execed(target)
    }

    /// Fails if the agent's thread still has rights. It must give them up before its hello, or
    /// leave, because any thread of the program can write its stack.
    pub(super) fn check_confined(&self, process: Process) -> Result<(), Error> {
        let status = |tid| process.thread_status(tid).ok();
        match self.thread.and_then(status) {
            Some(status) if status.cap_eff != 0 || !status.no_new_privs => {
                Err(Error::AgentHasRights)
            }
            _ => Ok(()),
        }
    }

    /// Returns the agent's signals, with its thread's current number: that changes if the program
    /// changes its user or its namespaces.
    pub(super) fn masks_now(&self, process: Process, link: &Link) -> Option<Masks> {
        let spare = agent_thread(process, link.data().thread());
        self.masks
            .filter(|_| spare.is_some())
            .map(|masks| Masks { spare, ..masks })
    }
}
