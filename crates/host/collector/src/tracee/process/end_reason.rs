//! Detects why a trace ends early: an exec, the program's end, or rights that the program gives up but the thread of
//! the agent (tiptoe's library) cannot.

use std::cell::Cell;

use tiptoe_session::{EndCause, ProcessNote};
use tiptoe_wire::{LeaveReason, Site, State};

use super::TracedProcess;
use crate::words::session_target;

#[derive(Default)]
pub(super) struct ReportedEnds {
    process: Cell<bool>,
    trace: Cell<Option<EndCause>>,
}

impl TracedProcess {
    pub fn runs_another_program(&self) -> bool {
        let now = self.target.process.running_program();
        now.is_ok_and(|now| now.differs(&self.presence.program))
    }

    /// `None` if the last note had the same cause.
    pub fn trace_end(&self, cause: EndCause) -> Option<ProcessNote> {
        let is_new = self.reported.trace.replace(Some(cause)) != Some(cause);
        is_new.then(|| ProcessNote::TraceEnded {
            process: session_target(&self.target),
            cause,
            after_ns: self.since.elapsed().as_nanos() as u64,
        })
    }

    /// Returns why the trace ended before the program. Restores the code at the agent's `sites` if the agent cannot.
    pub fn ended_by(&self, sites: &[Site]) -> Option<EndCause> {
        if self.presence.has_execed(&self.target) {
            return Some(EndCause::Exec);
        }
        Some(match self.left_for(sites)? {
            LeaveReason::Seccomp => EndCause::Seccomp,
            LeaveReason::Confined => EndCause::Confined,
            LeaveReason::Dispatch => EndCause::Dispatch,
            LeaveReason::Storage => EndCause::Storage,
        })
    }

    /// The agent leaves by itself if it sees the call that confines the program; otherwise this function makes the
    /// agent leave.
    fn left_for(&self, sites: &[Site]) -> Option<LeaveReason> {
        let link = self.target.link.as_ref()?;
        let presence = &self.presence;
        if link.data().state() == State::Dormant {
            let why = link.data().left().unwrap_or(LeaveReason::Confined);
            presence.left.set(presence.left.get().or(Some(why)));
        } else if presence.left.get().is_none()
            && !self.target.has_ended()
            && let Some(why) = presence
                .confinement
                .look(self.target.process, link.data().thread())
        {
            match presence.confinement.covers_agent(self.target.process) {
                true => self.put_back(link, sites),
                // An agent that does not answer has ended already.
                false => drop(self.detach()),
            }
            presence.left.set(Some(why));
        }
        link.note_look();
        presence.left.get()
    }

    /// Returns whether only the agent's thread runs, because the program ended all of its own
    /// threads but not the process. The agent's thread may also be the last in a killed process,
    /// but does not sleep there.
    pub fn only_agent_left(&self) -> bool {
        let status = self.target.process.status();
        let sleeps = |tid| {
            let status = self.target.process.thread_status(tid);
            status.is_ok_and(|status| status.state == 'S')
        };
        status.is_ok_and(|status| status.state == 'Z' && status.threads == 2)
            && self.presence.thread.is_some_and(sleeps)
    }

    /// Returns how the program ended, but only at the first call after its end.
    pub fn end(&self) -> Option<ProcessNote> {
        if !self.target.has_ended() || self.reported.process.replace(true) {
            return None;
        }
        Some(ProcessNote::Ended {
            process: session_target(&self.target),
            signal: self.target.killed_by(),
            after_ns: self.since.elapsed().as_nanos() as u64,
        })
    }
}
