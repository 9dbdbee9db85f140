//! Notes processes and traces that have ended.

use tiptoe_session::{EndCause, ProcessNote};

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
            let cause = tracee.ended_by();
            all &= cause.is_some();
            let is_new =
                |cause: &EndCause| tracee.reported_end.replace(Some(*cause)) != Some(*cause);
            if let Some(cause) = cause.filter(is_new) {
                let note = ProcessNote::TraceEnded {
                    process: session_target(&tracee.target),
                    cause,
                    after_ns: tracee.since.elapsed().as_nanos() as u64,
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
