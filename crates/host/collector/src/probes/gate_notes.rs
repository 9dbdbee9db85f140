//! Reports the functions of `--under`: hits count only during their calls.

use tiptoe_session::FunctionNote;

use super::Run;
use super::event_sums::Events;

impl Run<'_> {
    /// Notes how often each function was called, and how many of these calls could not be followed.
    pub(super) fn note_gates(&mut self, events: &Events) {
        for (event, total) in &events.gates {
            let function = || event.strip_prefix("uprobe:").unwrap_or(event).to_owned();
            let notes = &mut self.session.notes;
            let function_was = match total.all.reading.count {
                0 => FunctionNote::NeverCalled {
                    function: function(),
                },
                calls => FunctionNote::Called {
                    function: function(),
                    calls,
                },
            };
            notes.push(function_was.into());
            let calls = total.all.reading.ends.map_or(0, |ends| ends.only_counted);
            if calls > 0 {
                let function = function();
                notes.push(FunctionNote::CallsNotFollowed { function, calls }.into());
            }
        }
    }
}
