//! Reads recorded calls, and limits the CPU time that reading takes.

use std::time::Duration;

use tiptoe_price::own;

use crate::clock::RunClock;
use crate::drive::Targets;
use crate::request::Observer;
use crate::tracee::{PATIENCE, RecordedCall};

/// With this pause, a thread's ring of records has room for 1.6 million calls a second; further calls are counted as
/// lost.
pub(super) const READ_PAUSE: Duration = Duration::from_millis(5);
/// Reading and reporting records takes at most 1/`SHARE` of one CPU's time.
const SHARE: u32 = 8;

pub(super) fn pause_after(took: Duration) -> Duration {
    READ_PAUSE.max(took * SHARE)
}

/// Drops the recorded calls if there is no observer. Returns the CPU time used.
pub(super) fn serve(
    at: &Targets,
    clock: RunClock,
    observer: Option<&mut dyn Observer>,
) -> Duration {
    let before = own::thread();
    for tracee in &at.traced {
        let agent = &tracee.agent;
        agent.read_records(&tracee.process, clock, PATIENCE);
    }
    match observer {
        Some(observer) => report_calls(at, observer),
        None => drop(take_calls(at)),
    }
    own::thread().saturating_sub(before)
}

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
    let traced = at.traced.iter();
    traced.flat_map(|one| one.agent.take_calls()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_records_takes_a_share_of_the_time() {
        let ms = Duration::from_millis;
        for (took, pause) in [(0, 5), (1, 8), (5, 40), (50, 400)] {
            assert_eq!(pause_after(ms(took)), ms(pause));
        }
    }
}
