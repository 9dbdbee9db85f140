//! Handles libraries that targets load while they are traced.

use tiptoe_session::{FunctionNote, Note};

use super::Probes;
use crate::drive::Targets;
use crate::request::{Error, Observer};
use crate::tracee::Tracee;

/// Specs that never matched.
#[derive(Default)]
pub(super) struct UnmatchedSpecs {
    specs: Vec<String>,
    /// Libraries may have matched, but ran before they were probed.
    is_unread: bool,
    /// Whether any spec matched.
    has_counters: bool,
}

impl UnmatchedSpecs {
    pub(super) fn of(at: &Targets) -> UnmatchedSpecs {
        let mut traced = at.traced.iter();
        UnmatchedSpecs {
            specs: traced.clone().flat_map(Tracee::waiting).cloned().collect(),
            is_unread: traced.clone().any(|tracee| tracee.missed().is_some()),
            has_counters: traced.any(|tracee| !tracee.counters.is_empty()),
        }
    }

    /// Notes the specs; fails if nothing at all matched.
    pub(super) fn note(self, notes: &mut Vec<Note>) -> Result<(), Error> {
        let is_unread = self.is_unread;
        let mut specs = self.specs.into_iter();
        if !is_unread && !self.has_counters {
            return specs.next().map_or(Ok(()), |spec| {
                let what = format!("`{spec}` matched nothing that was loaded");
                Err(Error::new(what))
            });
        }
        notes.extend(specs.map(|spec| FunctionNote::NothingMatched { spec, is_unread }.into()));
        Ok(())
    }
}

impl Probes<'_> {
    /// Probes the libraries that were just loaded.
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

    /// Looks for the libraries of commands that have just begun and that no agent is in. Returns
    /// whether any still load.
    pub(super) fn catch_starts(&mut self, at: &mut Targets) -> bool {
        let cache = &mut self.cache;
        let starting = at.traced.iter_mut();
        let starting = starting.filter_map(|tracee| tracee.catch_start(cache).then_some(()));
        starting.count() > 0
    }

    /// Notes the specs that wait for a library.
    pub(super) fn note_waiting(&self, at: &Targets, observer: &mut dyn Observer) {
        for spec in at.traced.iter().flat_map(Tracee::waiting) {
            let spec = spec.clone();
            observer.note(&FunctionNote::WaitsForLibrary { spec }.into());
        }
    }
}
