//! Handles libraries that targets load while they are traced.

use std::time::Duration;

use tiptoe_attach::doorbell::{self, Bell};
use tiptoe_session::{FunctionNote, Refusal};

use super::pace::TURN;
use super::{Run, add};
use crate::request::{Error, Observer};
use crate::tracee::Tracee;

impl Run<'_> {
    /// Probes the libraries that were just loaded.
    pub(super) fn look_for_libraries(&mut self, observer: &mut dyn Observer) {
        for tracee in &mut self.tracees {
            let results = tracee.serve_loader(self.plan, &mut self.cache);
            for note in results.notes {
                if !self.session.notes.contains(&note) {
                    add(&mut self.session, note, observer);
                }
            }
            for (event, why) in results.refused {
                let refusal = Refusal::new(&event, &why);
                if !self.session.refusals.contains(&refusal) {
                    self.session.refusals.push(refusal);
                }
            }
        }
    }

    /// Sleeps until a library is loaded, at most for `limit`. During a flood of rings, sleeps for
    /// the whole `limit`.
    pub(super) fn sleep(&mut self, limit: Duration) {
        let bells: Vec<Bell> = self.tracees.iter().filter_map(Tracee::bell).collect();
        match self.pace.is_awake() {
            true => doorbell::wait(&bells, limit),
            false => std::thread::sleep(limit.min(TURN)),
        }
        let was_rung = doorbell::is_rung(&bells);
        self.pace.note_pause(was_rung);
    }

    /// Notes the specs that wait for a library.
    pub fn note_waiting(&self, observer: &mut dyn Observer) {
        for spec in self.tracees.iter().flat_map(Tracee::waiting) {
            let spec = spec.clone();
            observer.note(&FunctionNote::WaitsForLibrary { spec }.into());
        }
    }

    /// Notes the specs that never matched; fails if nothing at all matched.
    pub fn end_waiting(&mut self) -> Result<(), Error> {
        let is_unread = self.tracees.iter().any(|tracee| tracee.missed().is_some());
        let mut waiting = self.tracees.iter().flat_map(Tracee::waiting).cloned();
        let mut tracees = self.tracees.iter();
        if !is_unread && tracees.all(|tracee| tracee.counters.is_empty()) {
            return waiting.next().map_or(Ok(()), |spec| {
                let what = format!("`{spec}` matched nothing that was loaded");
                Err(Error::new(what))
            });
        }
        let vain = waiting.map(|spec| FunctionNote::NothingMatched { spec, is_unread }.into());
        self.session.notes.extend(vain);
        Ok(())
    }
}
