//! Handles libraries that traced targets load.

use tiptoe_session::{FunctionNote, Note};

use super::Probes;
use crate::drive::Targets;
use crate::error::Error;
use crate::request::Observer;
use crate::tracee::Tracee;

/// Adds notes about the specs (the user's words for events) that matched nothing. Fails if no spec matched.
pub(super) fn note_unmatched(at: &Targets, notes: &mut Vec<Note>) -> Result<(), Error> {
    let is_unread = at.traced.iter().any(|tracee| missed(tracee).is_some());
    let mut specs = waiting(at).cloned();
    let mut traced = at.traced.iter();
    if !is_unread && traced.all(|tracee| tracee.counters().next().is_none()) {
        let none = specs.next().map(Error::NothingLoaded);
        return none.map_or(Ok(()), Err);
    }
    notes.extend(specs.map(|spec| FunctionNote::NothingMatched { spec, is_unread }.into()));
    Ok(())
}

pub(super) fn missed(tracee: &Tracee) -> Option<Note> {
    tracee.agent.patches.later.missed(&tracee.process)
}

fn waiting(at: &Targets) -> impl Iterator<Item = &String> {
    let traced = at.traced.iter();
    traced.flat_map(|one| &one.agent.patches.later.waiting)
}

impl Probes<'_> {
    pub(super) fn look_for_libraries(&mut self, at: &mut Targets, observer: &mut dyn Observer) {
        for tracee in &mut at.traced {
            let results = tracee.serve_loader(self.plan, &mut self.cache);
            for note in results.notes {
                if !self.report.notes.contains(&note) {
                    self.report.add(note, observer);
                }
            }
            self.report.refuse(results.refused);
        }
    }

    /// Returns whether any command without an agent (tiptoe's library) still loads libraries.
    pub(super) fn catch_starts(&mut self, at: &mut Targets) -> bool {
        let catch = |is_any, tracee: &mut Tracee| {
            let Tracee { locks, process, .. } = tracee;
            locks.catch_start(process, &mut self.cache) || is_any
        };
        at.traced.iter_mut().fold(false, catch)
    }

    pub(super) fn note_waiting(&self, at: &Targets, observer: &mut dyn Observer) {
        for spec in waiting(at) {
            let spec = spec.clone();
            observer.note(&FunctionNote::WaitsForLibrary { spec }.into());
        }
    }
}
