//! Looks for other tracers of the probed functions, and for untraced children that run a traced process's program.

use std::collections::BTreeSet;

use tiptoe_event::ShellWord;
use tiptoe_sys::host::procfs::Process;

use super::Run;
use crate::tracee::Tracee;
use crate::words::few;

/// The most threads of a process whose children are looked for: each has a file to read.
const THREADS: usize = 64;

/// What all looks have found.
#[derive(Default)]
pub(super) struct Bystanders {
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
            self.bystanders.foreign.extend(events);
        }
    }

    /// Notes the events of other tracers in one sentence.
    fn note_foreign(&mut self) {
        let events: Vec<String> = self.bystanders.foreign.iter().cloned().collect();
        let its = match events.len() {
            0 => return,
            1 => "its",
            _ => "their",
        };
        self.session.notes.push(format!(
            "another tracer probed {} too: during that time {its} hits were counted through a trap, or not \
             at all",
            few(&events)
        ));
    }

    /// Notes what was found.
    pub(super) fn note_bystanders(&mut self) {
        self.note_foreign();
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
        self.bystanders.children = self.bystanders.children.max(all);
    }

    /// Notes the untraced children, and how to trace them.
    fn note_children(&mut self) {
        let children = self.bystanders.children;
        let Some(first) = self.tracees.first().filter(|_| children > 0) else {
            return;
        };
        let who = match children {
            1 => "1 child runs the same program and is not traced".to_owned(),
            some => format!("{some} children run the same program and are not traced"),
        };
        // Quoted, because the program chose this name.
        let comm = ShellWord(first.target.comm.as_bytes());
        let note = format!("{who}: `--comm {comm}` traces all running processes of that name");
        self.session.notes.push(note);
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
