//! Reads recorded calls, in a limited share of tiptoe's own time.

use std::time::Duration;

use tiptoe_price::own;

use super::Probes;
use crate::drive::{RunClock, Targets};
use crate::request::Observer;
use crate::tracee::{RecordedCall, Tracee};

/// The pause between two reads of recorded calls. In this time a ring has room for up to 1.6
/// million calls a second; calls beyond that are counted as lost.
pub(super) const READ_PAUSE: Duration = Duration::from_millis(5);
/// Reading and writing records takes at most one part in this many of one CPU's time.
const SHARE: u32 = 8;

/// When records are read next.
#[derive(Default)]
pub(super) struct RecordPace {
    next: Duration,
}

impl RecordPace {
    pub(super) fn is_due(&self, now: Duration) -> bool {
        now >= self.next
    }

    /// Records that records were read at `now`, in this much CPU time.
    fn has_read(&mut self, now: Duration, took: Duration) {
        self.next = now + READ_PAUSE.max(took * SHARE);
    }
}

impl Probes<'_> {
    /// Reads the recorded calls, and reports them; during the delay there is nobody to report to.
    pub(super) fn serve_records(
        &mut self,
        at: &Targets,
        clock: RunClock,
        observer: Option<&mut dyn Observer>,
    ) {
        let (now, before) = (self.looks.clock.elapsed(), own::thread());
        at.traced
            .iter()
            .for_each(|tracee| tracee.read_records(clock));
        match observer {
            Some(observer) => report_calls(at, observer),
            None => drop(take_calls(at)),
        }
        let took = own::thread().saturating_sub(before);
        self.looks.records.has_read(now, took);
    }
}

/// Reports the calls that were read.
pub(super) fn report_calls(at: &Targets, observer: &mut dyn Observer) {
    let mut calls = take_calls(at);
    if calls.is_empty() {
        return;
    }
    calls.sort_by_key(RecordedCall::at_ns);
    let calls: Vec<_> = calls.iter().map(RecordedCall::call).collect();
    observer.calls(&calls);
}

fn take_calls(at: &Targets) -> Vec<RecordedCall> {
    at.traced.iter().flat_map(Tracee::take_calls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_records_takes_a_share_of_the_time() {
        let now = Duration::from_secs(7);
        let mut pace = RecordPace::default();
        assert!(pace.is_due(Duration::ZERO));
        for took in [
            Duration::ZERO,
            READ_PAUSE / 100,
            READ_PAUSE,
            READ_PAUSE * 10,
        ] {
            pace.has_read(now, took);
            let next = now + READ_PAUSE.max(took * SHARE);
            assert!(!pace.is_due(next - Duration::from_nanos(1)) && pace.is_due(next));
        }
    }
}
