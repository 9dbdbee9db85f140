//! Decides whether an agent (tiptoe's library) can still answer. An agent cannot answer after an exec, or while its
//! thread is kept from running.

use std::fs::File;
use std::time::{Duration, Instant};

use tiptoe_sys::host::procfs::{Process, RunningProgram};

use super::{Link, PATIENCE};
use crate::inject::is_given_up;
use crate::resident::agent_thread;

const LOOK: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_micros(200);
/// If the agent's thread is not seen running for this time, tiptoe stops waiting for an answer.
const SILENCE: Duration = Duration::from_secs(2);

pub(super) struct Pulse {
    pub(super) process: Process,
    pub(super) program: RunningProgram,
    /// /proc/PID/mem, which refers to the old memory after an exec.
    pub(super) memory: File,
}

impl Pulse {
    /// Returns whether the process has ended or called exec. If so, first waits until /proc shows the end or the new
    /// memory, because the kernel drops the old memory before that.
    pub(super) fn is_over(&self, has_ended: &dyn Fn() -> bool) -> bool {
        // The second test is needed because, after exec, a vfork child may keep the old memory in use.
        if !is_given_up(&self.memory) && !self.is_another_program() {
            return false;
        }
        let until = Instant::now() + SILENCE;
        let has_memory = || self.process.maps().is_ok_and(|maps| !maps.is_empty());
        while !has_ended() && !has_memory() && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
        true
    }

    fn is_another_program(&self) -> bool {
        let now = self.process.program_of_thread(self.process.pid());
        now.is_ok_and(|now| now.differs(&self.program))
    }

    /// Returns whether the thread runs, or waits only for a CPU or a disk.
    fn runs(&self, thread: u32) -> bool {
        let thread = agent_thread(self.process, thread);
        let status = thread.and_then(|tid| self.process.thread_status(tid).ok());
        status.is_some_and(|status| matches!(status.state, 'R' | 'D'))
    }
}

pub(super) struct Wait<'l> {
    link: &'l Link,
    until: Instant,
    seen: Instant,
    looked: Instant,
}

impl<'l> Wait<'l> {
    pub(super) fn new(link: &'l Link) -> Wait<'l> {
        let now = Instant::now();
        Wait {
            link,
            until: now + PATIENCE,
            seen: now,
            looked: now,
        }
    }

    /// Returns whether the wait has lasted for [`PATIENCE`], or the agent's thread was not seen running for
    /// [`SILENCE`].
    pub(super) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if now - self.looked > LOOK {
            self.looked = now;
            let pulse = self.link.pulse.get();
            let thread = self.link.data().thread();
            if pulse.is_none_or(|pulse| pulse.runs(thread)) {
                self.seen = now;
            }
        }
        now > self.until || now - self.seen > SILENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Terms;
    use crate::memfd::memfd;
    use tiptoe_wire::{Geometry, Plan, Request};

    #[test]
    fn an_agent_that_does_not_run_is_asked_once() {
        let geometry = Geometry {
            slots: 16,
            slabs: 1,
            rings: false,
            hits: false,
        };
        let data = memfd(c"data", geometry.data_bytes()).expect("memory");
        let plan = memfd(c"plan", Plan::FILE_BYTES).expect("memory");
        let link = Link::new(data, plan, geometry, &Terms::default(), Box::new(|| false));
        let link = link.expect("segments");
        let process = Process::current();
        link.is_in(process, process.running_program().expect("our own"));
        assert!(link.ask(Request::Go, 0).is_err());
        let sequence = link.plan().sequence();
        assert!(link.ask(Request::Detach, 0).is_err());
        assert_eq!(link.plan().sequence(), sequence);
        link.data().answer(sequence, 0);
        assert!(link.ask(Request::Detach, 0).is_err());
        assert_eq!(link.plan().sequence(), sequence + 1);
    }
}
