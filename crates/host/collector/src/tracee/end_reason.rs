//! Detects why a trace ends early: an exec, the program's end, or rights that the program gives up
//! but the agent's thread cannot.

use tiptoe_attach::resident::agent_in;
use tiptoe_session::{EndCause, ProcessNote};
use tiptoe_wire::{LeaveReason, State};

use super::Tracee;
use crate::drive::session_target;

impl Tracee {
    /// Returns whether the process runs another program than the traced one. An exec ends the
    /// agent's thread and removes its memory. So does an exit, but it leaves no memory at all. The
    /// maps are read twice, because a reading that races with the removal may be incomplete.
    pub(super) fn has_execed(&self) -> bool {
        let Some(tid) = self.agent_thread else {
            return false;
        };
        let thread = format!("/proc/{}/task/{tid}", self.target.process.pid());
        let another = || match self.target.process.maps() {
            Ok(maps) => !maps.is_empty() && agent_in(&maps).is_none(),
            Err(_) => !self.target.has_ended(),
        };
        !std::path::Path::new(&thread).exists() && another() && another()
    }

    /// Returns whether the kernel reports another program than when the process was attached.
    pub(super) fn runs_another_program(&self) -> bool {
        let now = self.target.process.running_program();
        now.is_ok_and(|now| now.differs(&self.program))
    }

    /// Returns why the trace ended before the program, if it did.
    pub fn ended_by(&self) -> Option<EndCause> {
        if self.has_execed() || self.has_left_kernel() {
            return Some(EndCause::Exec);
        }
        Some(match self.left_for()? {
            LeaveReason::Seccomp => EndCause::Seccomp,
            LeaveReason::Confined => EndCause::Confined,
            LeaveReason::Dispatch => EndCause::Dispatch,
            LeaveReason::Storage => EndCause::Storage,
        })
    }

    /// Returns why the agent has left, if it has. The agent leaves by itself if it sees the call
    /// that confines the program; otherwise tiptoe makes it leave here.
    fn left_for(&self) -> Option<LeaveReason> {
        let link = self.target.link.as_ref()?;
        if link.data().state() == State::Dormant {
            let why = link.data().left().unwrap_or(LeaveReason::Confined);
            self.left.set(self.left.get().or(Some(why)));
        } else if self.left.get().is_none()
            && !self.target.has_ended()
            && let Some(why) = self
                .confinement
                .look(self.target.process, link.data().thread())
        {
            match self.confinement.covers_agent(self.target.process) {
                true => self.put_back(link),
                // An agent that does not answer has ended already.
                false => drop(self.detach()),
            }
            self.left.set(Some(why));
        }
        link.note_look();
        self.left.get()
    }

    /// Returns whether only the agent's thread runs, because the program ended all of its own
    /// threads but not the process. In a killed process the agent's thread may be the last, too,
    /// but then it does not sleep.
    pub fn only_agent_left(&self) -> bool {
        let status = self.target.process.status();
        let sleeps = |tid| {
            let status = self.target.process.thread_status(tid);
            status.is_ok_and(|status| status.state == 'S')
        };
        status.is_ok_and(|status| status.state == 'Z' && status.threads == 2)
            && self.agent_thread.is_some_and(sleeps)
    }

    /// Returns how the program ended, at the first call after its end.
    pub fn end(&self) -> Option<ProcessNote> {
        if !self.target.has_ended() || self.is_end_reported.replace(true) {
            return None;
        }
        Some(ProcessNote::Ended {
            process: session_target(&self.target),
            signal: self.target.killed_by(),
            after_ns: self.since.elapsed().as_nanos() as u64,
        })
    }
}
