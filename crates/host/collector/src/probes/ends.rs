//! Notes processes and traces that have ended.

use tiptoe_session::{Note, ProcessNote};

use super::Probes;
use crate::drive::{Targets, session_target};
use crate::request::Observer;
use crate::tracee::Tracee;

impl Probes<'_> {
    /// Notes the traces that ended before their programs, and attached processes that have ended.
    /// Returns whether all traces have ended before their programs.
    pub(super) fn look_for_ends(&mut self, at: &Targets, observer: &mut dyn Observer) -> bool {
        let mut all = true;
        for tracee in &at.traced {
            let Some(cause) = tracee.ended_by() else {
                all = false;
                continue;
            };
            let process = session_target(&tracee.target);
            let is_it = |note: &Note| match note {
                Note::Process(ProcessNote::TraceEnded {
                    process: who,
                    cause: why,
                    ..
                }) => (who, *why) == (&process, cause),
                _ => false,
            };
            if !self.report.notes.iter().any(is_it) {
                let after_ns = tracee.since.elapsed().as_nanos() as u64;
                let note = ProcessNote::TraceEnded {
                    process,
                    cause,
                    after_ns,
                };
                self.report.add(note, observer);
            }
        }
        let attached = at.traced.iter().filter(|one| !one.target.is_command());
        for note in attached.filter_map(Tracee::end) {
            self.report.add(note, observer);
        }
        all
    }
}
