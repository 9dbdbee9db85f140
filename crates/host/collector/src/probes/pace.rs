//! Decides how often a run serves its targets: at once if there is something new, but only once per
//! turn in a flood.

use std::time::{Duration, Instant};

/// The pause between two reads of recorded calls. In this time a ring has room for up to 1.6
/// million calls a second; calls beyond that are counted as lost.
pub(super) const TURN: Duration = Duration::from_millis(5);
/// Reading and writing records takes at most one part in this many of one CPU's time.
const SHARE: u32 = 8;
/// After this many rings in a row, libraries are served only once per turn. Even a program that
/// loads many libraries rarely reaches this: each load waits for tiptoe, so there are turns without
/// a ring.
const RINGS: u32 = 1000;

/// The times of a run's next turns.
pub(super) struct Pace {
    records_at: Instant,
    rings: u32,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace {
            records_at: now,
            rings: 0,
        }
    }

    /// Returns whether to read the records now.
    pub(super) fn reads_records(&self, now: Instant) -> bool {
        now >= self.records_at
    }

    /// Records that records were read at `now`, in this much CPU time.
    pub(super) fn has_read(&mut self, now: Instant, took: Duration) {
        self.records_at = now + TURN.max(took * SHARE);
    }

    /// Returns whether rings are answered at once.
    pub(super) fn is_awake(&self) -> bool {
        self.rings < RINGS
    }

    /// Records whether a ring ended the last pause, or happened in it.
    pub(super) fn note_pause(&mut self, was_rung: bool) {
        self.rings = match was_rung {
            true => self.rings.saturating_add(1),
            false => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_records_takes_a_share_of_the_time() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert!(pace.reads_records(start));
        for took in [Duration::ZERO, TURN / 100, TURN, TURN * 10] {
            pace.has_read(start, took);
            let next = TURN.max(took * SHARE);
            assert!(!pace.reads_records(start + next - Duration::from_nanos(1)));
            assert!(pace.reads_records(start + next));
        }
    }

    #[test]
    fn a_flood_of_rings_is_answered_in_turns_until_it_is_quiet() {
        let mut pace = Pace::new(Instant::now());
        for _ in 0..RINGS {
            assert!(pace.is_awake());
            pace.note_pause(true);
        }
        assert!(!pace.is_awake());
        pace.note_pause(true);
        assert!(!pace.is_awake());
        pace.note_pause(false);
        assert!(pace.is_awake());
    }
}
