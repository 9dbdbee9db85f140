//! Looks for other tracers of the probed functions, and for untraced children that run a traced process's program.

use std::collections::BTreeSet;

use tiptoe_session::{FunctionNote, ProcessNote};
use tiptoe_sys::host::procfs::Process;

use super::Run;
use crate::tracee::Tracee;

/// The most threads of a process whose children are looked for: each has a file to read.
const THREADS: usize = 64;

/// What all looks have found.
#[derive(Default)]
pub(super) struct OutsideFindings {
    /// The events that other tracers probe as well.
    foreign: BTreeSet<String>,
    /// The most untraced children at any look.
    children: usize,
}

impl Run<'_> {
    /// Looks for events that another tracer probes as well.
    pub fn look_for_foreign(&mut self) {
        for tracee in &self.tracees {
            let events = tracee.foreign().into_iter().map(str::to_owned);
            self.outside_findings.foreign.extend(events);
        }
    }

    /// Notes what was found.
    pub(super) fn note_outside_findings(&mut self) {
        let events: Vec<String> = self.outside_findings.foreign.iter().cloned().collect();
        if !events.is_empty() {
            let note = FunctionNote::OtherTracer { events };
            self.session.notes.push(note.into());
        }
        self.note_children();
    }

    /// Looks how many untraced children run the same program now.
    pub(super) fn look_for_children(&mut self) {
        let traced: Vec<u32> = self
            .tracees
            .iter()
            .map(|one| one.target.process.pid())
            .collect();
        let all = self.tracees.iter().map(|one| untraced(one, &traced)).sum();
        self.outside_findings.children = self.outside_findings.children.max(all);
    }

    /// Notes the untraced children.
    fn note_children(&mut self) {
        let children = self.outside_findings.children as u64;
        if let Some(first) = self.tracees.first().filter(|_| children > 0) {
            let comm = first.target.comm.clone();
            let note = ProcessNote::UntracedChildren { children, comm };
            self.session.notes.push(note.into());
        }
    }
}

/// Returns how many children of a process run its program and are not in `traced`.
fn untraced(tracee: &Tracee, traced: &[u32]) -> usize {
    let process = tracee.target.process;
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
