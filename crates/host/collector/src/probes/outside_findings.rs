//! Looks for other tracers of the probed functions, and for untraced children that run a traced process's program.

use std::collections::BTreeSet;

use tiptoe_session::{FunctionNote, ProcessNote, Session};
use tiptoe_sys::host::procfs::Process;

use crate::drive::Targets;
use crate::tracee::Tracee;

/// The children of at most this many threads of a process are read, because each thread costs a file read.
const THREADS: usize = 64;

#[derive(Default)]
pub(super) struct OutsideFindings {
    foreign: BTreeSet<String>,
    /// The most untraced children that one look found.
    children: usize,
}

impl OutsideFindings {
    pub(super) fn look_for_foreign(&mut self, at: &Targets) {
        for tracee in &at.traced {
            let events = tracee
                .agent
                .foreign(&tracee.process)
                .into_iter()
                .map(str::to_owned);
            self.foreign.extend(events);
        }
    }

    pub(super) fn note(&self, at: &Targets, session: &mut Session) {
        let events: Vec<String> = self.foreign.iter().cloned().collect();
        if !events.is_empty() {
            let note = FunctionNote::OtherTracer { events };
            session.notes.push(note.into());
        }
        let moved = at.traced.iter();
        let moved = moved.filter_map(|one| one.agent.patches.code_was_moved(&one.process));
        session.notes.extend(moved.map(Into::into));
        let children = self.children as u64;
        if let Some(first) = at.traced.first().filter(|_| children > 0) {
            let comm = first.process.target.comm.clone();
            let note = ProcessNote::UntracedChildren { children, comm };
            session.notes.push(note.into());
        }
    }

    pub(super) fn look_for_children(&mut self, at: &Targets) {
        let traced: Vec<u32> = at.counted().map(|one| one.process.pid()).collect();
        let all = at.traced.iter().map(|one| untraced(one, &traced)).sum();
        self.children = self.children.max(all);
    }
}

fn untraced(tracee: &Tracee, traced: &[u32]) -> usize {
    let process = tracee.process.target.process;
    let Ok(program) = process.exe() else {
        return 0;
    };
    let threads = process.threads().unwrap_or_default();
    let threads = threads.into_iter().take(THREADS);
    let children = threads.flat_map(|tid| process.thread_children(tid).unwrap_or_default());
    let is_like_it = |pid: &u32| {
        let exe = Process::new(*pid).and_then(Process::exe);
        exe.is_ok_and(|exe| exe == program)
    };
    children
        .filter(|pid| !traced.contains(pid))
        .filter(is_like_it)
        .count()
}
