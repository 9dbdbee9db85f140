//! The pauses between polls for stopped threads. Polls are needed, because waitid(2) has no deadline and a pidfd
//! does not report stops.
//!
//! A running thread stops within microseconds, and all stopped threads wait for the last one. So the first polls
//! only yield. A thread without a CPU takes longer to stop, so later polls sleep.

use std::time::{Duration, Instant};

const YIELDING: Duration = Duration::from_micros(100);
/// The first sleep. Each sleep is twice the last one, so that polling at most doubles the length of a stop.
const SHORTEST: Duration = Duration::from_micros(20);
const LONGEST: Duration = Duration::from_micros(200);

pub(super) struct PollBackoff {
    yields_until: Instant,
    pause: Duration,
}

impl PollBackoff {
    pub(super) fn new() -> Self {
        Self {
            yields_until: Instant::now() + YIELDING,
            pause: SHORTEST,
        }
    }

    pub(super) fn pause(&mut self) {
        if Instant::now() < self.yields_until {
            return std::thread::yield_now();
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST);
    }
}
