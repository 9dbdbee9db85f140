//! Reports the functions of `--under`: hits count only during their calls.

use super::Run;
use crate::totals::Events;
use crate::words::counted;

impl Run<'_> {
    /// Notes how often each function was called, and how many of these calls could not be followed.
    pub(super) fn note_gates(&mut self, events: &Events) {
        for (event, total) in &events.gates {
            let name = event.strip_prefix("uprobe:").unwrap_or(event);
            let calls = counted(total.all.reading.count, "time");
            let missed = total.all.reading.ends.map_or(0, |ends| ends.only_counted);
            self.session.notes.push(match total.all.reading.count {
                0 => {
                    format!("{name} was not called: calls that began before the trace are not seen")
                }
                _ => format!("{name} was called {calls}"),
            });
            if missed > 0 {
                let missed = counted(missed, "call");
                self.session.notes.push(format!(
                    "hits below {missed} of {name} are not counted: these calls were nested too deeply, made \
                     from too many places or from generated code, or ran in too many threads"
                ));
            }
        }
    }
}
