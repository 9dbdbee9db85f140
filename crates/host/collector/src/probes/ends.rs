//! Adds notes to the report about ended processes and traces.

use super::Probes;
use crate::drive::Targets;
use crate::request::Observer;

impl Probes<'_> {
    /// Returns whether all traces have ended before their programs.
    pub(super) fn look_for_ends(&mut self, at: &Targets, observer: &mut dyn Observer) -> bool {
        let mut all = true;
        for tracee in &at.traced {
            let cause = tracee.ended_by();
            all &= cause.is_some();
            if let Some(note) = cause.and_then(|cause| tracee.process.trace_end(cause)) {
                self.report.add(note, observer);
            }
        }
        let attached = at
            .traced
            .iter()
            .filter(|one| !one.process.target.is_command());
        for note in attached.filter_map(|one| one.process.end()) {
            self.report.add(note, observer);
        }
        all
    }
}
