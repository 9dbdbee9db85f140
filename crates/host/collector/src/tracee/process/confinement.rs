//! Notices that a program has confined itself more than the thread of the agent (tiptoe's library). Then the agent
//! must leave, for two reasons: a seccomp filter may forbid the thread's calls or kill the thread, and the thread
//! must not have a right that no thread of the program has.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use tiptoe_sys::host::procfs::Process;
use tiptoe_sys::rights::Rights;
use tiptoe_wire::LeaveReason;

use tiptoe_attach::resident::agent_thread;

/// The number of threads whose filters a look reads, besides the first thread.
const AT_ONCE: usize = 2;

const PAUSE: Duration = Duration::from_millis(15);

pub struct Confinement {
    /// The most seccomp restrictions that any thread had at the attach.
    seccomp: u32,
    /// The agent's thread: its id in its own PID namespace, and in tiptoe's; and its rights, which never grow.
    agent: Cell<Option<(u32, u32, Rights)>>,
    /// The threads still to be looked at in this round.
    others: RefCell<Vec<u32>>,
    looked: Cell<Instant>,
}

impl Confinement {
    pub fn of(process: Process) -> Confinement {
        let threads = process.threads().unwrap_or_default().into_iter();
        let seccomp = threads.filter_map(|tid| seccomp(process, tid)).max();
        Confinement {
            seccomp: seccomp.unwrap_or(0),
            agent: Cell::new(None),
            others: RefCell::default(),
            looked: Cell::new(Instant::now()),
        }
    }

    /// Returns why the agent must leave, if it must. `thread` is the id of the agent's thread in the program's PID
    /// namespace.
    pub fn look(&self, process: Process, thread: u32) -> Option<LeaveReason> {
        if self.looked.get().elapsed() < PAUSE {
            return None;
        }
        self.looked.set(Instant::now());
        let (agent, own) = self.agent(process, thread)?;
        let first = rights(process, process.pid())?;
        let others = self.next(process).into_iter();
        let most = others.filter_map(|tid| seccomp(process, tid)).max();
        if most.max(Some(first.seccomp)) > Some(self.seccomp) {
            return Some(LeaveReason::Seccomp);
        }
        let is_within = || {
            let threads = process.threads().unwrap_or_default().into_iter();
            let mut others = threads.filter(|tid| *tid != agent);
            others.any(|tid| rights(process, tid).is_some_and(|other| own.are_within(&other)))
        };
        (!own.are_within(&first) && !is_within()).then_some(LeaveReason::Confined)
    }

    pub fn covers_agent(&self, process: Process) -> bool {
        let agent = self.agent.get().map(|(_, tid, _)| tid);
        agent.and_then(|tid| seccomp(process, tid)) > Some(self.seccomp)
    }

    fn agent(&self, process: Process, thread: u32) -> Option<(u32, Rights)> {
        let known = self.agent.get().filter(|(named, ..)| *named == thread);
        let found = known.or_else(|| {
            let tid = agent_thread(process, thread)?;
            Some((thread, tid, rights(process, tid)?))
        });
        self.agent.set(found);
        found.map(|(_, tid, rights)| (tid, rights))
    }

    fn next(&self, process: Process) -> Vec<u32> {
        let mut others = self.others.borrow_mut();
        if others.is_empty() {
            *others = process.threads().unwrap_or_default();
        }
        let from = others.len().saturating_sub(AT_ONCE);
        others.split_off(from)
    }
}

fn rights(process: Process, tid: u32) -> Option<Rights> {
    let folder = format!("/proc/{}/task/{tid}", process.pid());
    let status = std::fs::read(format!("{folder}/status")).ok()?;
    Rights::of(&status, |name| {
        let path = format!("{folder}/{}", name.to_str().ok()?);
        let found = std::fs::metadata(path).ok()?;
        Some([found.dev(), found.ino()])
    })
}

fn seccomp(process: Process, tid: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{}/task/{tid}/status", process.pid())).ok()?;
    Rights::of(&status, |_| None).map(|rights| rights.seccomp)
}
