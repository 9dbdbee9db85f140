//! The presence of the agent (tiptoe's library) in a process: the agent's thread, and what keeps the agent from
//! harming the program.

use std::cell::{Cell, OnceCell};

use tiptoe_attach::Attached;
use tiptoe_attach::inject::{Masks, Words};
use tiptoe_attach::link::Link;
use tiptoe_attach::resident::{agent_code, agent_in, agent_thread};
use tiptoe_sys::host::procfs::{Mapping, Process, RunningProgram};
use tiptoe_wire::LeaveReason;

use super::confinement::Confinement;
use crate::error::{Error, Reason};
use crate::module::Module;
use crate::planner;

#[derive(Clone, Debug)]
pub struct TrapFreeProcess {
    pub masks: Masks,
    pub why: Reason,
}

pub struct AgentPresence {
    /// The program at the attach, by which an exec is detected.
    pub program: RunningProgram,
    pub thread: Option<u32>,
    /// The signals that the agent handles, and where it records the threads that block these signals.
    pub masks: Option<Masks>,
    /// Set if no trap byte may be written, because threads may block SIGTRAP by calls that no hook sees.
    pub quiet: Option<TrapFreeProcess>,
    unseen: OnceCell<Option<Reason>>,
    pub left: Cell<Option<LeaveReason>>,
    pub confinement: Confinement,
}

impl AgentPresence {
    pub fn of(process: Process) -> AgentPresence {
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

    pub fn own(&mut self, masks: Masks, modules: &[Module]) {
        self.masks = Some(masks);
        let unseen = self.unseen(modules).cloned();
        self.quiet = unseen.map(|why| TrapFreeProcess { masks, why });
    }

    /// Returns why threads may block signals by calls that no hook sees ([`planner::blocks_signals`]).
    pub fn unseen(&self, modules: &[Module]) -> Option<&Reason> {
        self.unseen
            .get_or_init(|| planner::blocks_signals(modules))
            .as_ref()
    }

    /// An exec ends the agent's thread and removes its memory; an exit leaves no memory at all. Reads the maps
    /// twice, because a reading during an exit may lack only the agent's memory.
    pub fn has_execed(&self, target: &Attached) -> bool {
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

    pub fn serves(&self, target: &Attached) -> bool {
        self.left.get().is_none() && !target.has_ended() && !self.has_execed(target)
    }

    /// Fails if the agent's thread did not give up its rights before its first message. Any thread of the program could
    /// use these rights, because it can write to the agent's stack.
    pub fn check_confined(&self, process: Process) -> Result<(), Error> {
        let status = |tid| process.thread_status(tid).ok();
        match self.thread.and_then(status) {
            Some(status) if status.cap_eff != 0 || !status.no_new_privs => {
                Err(Error::AgentHasRights)
            }
            _ => Ok(()),
        }
    }

    /// Returns the agent's signals with the present id of the agent's thread. If the program changes its namespaces,
    /// the agent starts another thread.
    pub fn masks_now(&self, process: Process, link: &Link) -> Option<Masks> {
        let spare = agent_thread(process, link.data().thread());
        self.masks
            .filter(|_| spare.is_some())
            .map(|masks| Masks { spare, ..masks })
    }

    pub fn masks(
        &self,
        process: Process,
        tls: i64,
        [generation, first, frames]: [u64; 3],
        maps: &[Mapping],
    ) -> Result<Masks, Error> {
        const SIGILL_AND_SIGTRAP: u64 = 1 << 3 | 1 << 4;
        if self.thread.is_none() {
            return Err(Error::NoAgentThread);
        }
        Ok(Masks {
            pid: process.pid(),
            program: self.program,
            spare: self.thread,
            agent_code: agent_code(maps),
            signals: SIGILL_AND_SIGTRAP,
            words: Words {
                tls,
                generation: generation as u32,
                beginnings: [first, frames],
                is_glibc: maps.iter().any(is_glibc),
            },
        })
    }
}

fn is_glibc(mapping: &Mapping) -> bool {
    let name = mapping.file().and_then(|path| path.file_name());
    name.is_some_and(|name| {
        let name = name.to_string_lossy();
        name.starts_with("libc.so.6") || name.starts_with("libc-2.")
    })
}
