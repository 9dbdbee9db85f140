//! How often a run turns to its targets: as soon as something is there, and in a flood once in a while for all of it.

use std::time::{Duration, Instant};

/// How often the records of calls are read. A ring has room for what a thread records meanwhile at up to 1.6 million calls
/// a second; what comes faster is counted as lost.
pub(super) const TURN: Duration = Duration::from_millis(5);
/// Reading and writing records takes no more than one part in so many of one CPU's time.
const SHARE: u32 = 8;
/// After so many rings in a row libraries are looked for once in a turn only. A program that loads one after the other rings
/// as often, but rarely without a quiet turn in between: each of its loads waits for tiptoe.
const RINGS: u32 = 1000;

/// When a run turns to what next.
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

    /// Whether it is time to read records.
    pub(super) fn reads_records(&self, now: Instant) -> bool {
        now >= self.records_at
    }

    /// Records were read at `now`, which took this much CPU time.
    pub(super) fn has_read(&mut self, now: Instant, took: Duration) {
        self.records_at = now + TURN.max(took * SHARE);
    }

    /// Whether a ring is to be answered at once.
    pub(super) fn is_awake(&self) -> bool {
        self.rings < RINGS
    }

    /// Whether a ring ended the last pause, or came during it.
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
