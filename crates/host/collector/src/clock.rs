//! The clock of a run, and the pause between polls.

use std::time::Duration;

use tiptoe_sys::raw::monotonic_ns;

/// The pause between two polls of an instrument (a way to count) that serves an agent (tiptoe's library).
pub(crate) const TICK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    pub(crate) start_ns: u64,
}

impl RunClock {
    pub(crate) fn start() -> RunClock {
        let start_ns = monotonic_ns();
        RunClock { start_ns }
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.until(monotonic_ns())
    }

    pub(crate) fn is_before(self, other: RunClock) -> bool {
        self.start_ns < other.start_ns
    }

    pub(crate) fn until(self, at_ns: u64) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.start_ns))
    }
}
