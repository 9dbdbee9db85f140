//! Waits that were not over when the trace ended. Their times are lower bounds.

use tiptoe_futex::gaps::Beginning;
use tiptoe_price::clock;
use tiptoe_session::Unfinished;

use super::{Key, WaitRecords};

impl WaitRecords {
    pub fn at(now: u64) -> WaitRecords {
        WaitRecords {
            now,
            ..WaitRecords::default()
        }
    }

    pub(super) fn add_open_wait(&mut self, key: Key, who: &str, beginning: u64) {
        let ns = match Beginning::of(beginning) {
            Beginning::At(since) | Beginning::LongAgo(since) => ns_between(since, self.now),
            Beginning::Unknown => 0,
        };
        self.add_unfinished(key, who, ns);
    }

    pub(super) fn add_unfinished(&mut self, key: Key, who: &str, ns: u64) {
        let sums = self.unfinished.entry((key, who.to_owned())).or_default();
        sums.add(&Unfinished {
            waits: 1,
            total_ns: ns,
        });
    }

    pub(super) fn unfinished_waits(&self) -> u64 {
        let waits = self.unfinished.values().map(|unfinished| unfinished.waits);
        waits.fold(self.unfinished_without_row, u64::saturating_add)
    }

    pub fn has_unfinished(&self) -> bool {
        self.unfinished_waits() > 0 || self.early.values().any(|early| early.unfinished > 0)
    }
}

/// The times are in ticks.
pub fn ns_between(since: u64, now: u64) -> u64 {
    let ticks = now.saturating_sub(since);
    let ns = (u128::from(ticks) * u128::from(clock::ns_per_tick())) >> 32;
    u64::try_from(ns).unwrap_or(u64::MAX)
}
