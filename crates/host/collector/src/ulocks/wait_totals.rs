//! How many waits, wakes and holds were recorded so far.

use super::{WaitRecords, slept};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitTotals {
    pub waits: u64,
    pub untimed: u64,
    pub wakes: u64,
    pub holds: u64,
}

impl WaitTotals {
    pub fn add(&mut self, more: WaitTotals) {
        self.waits = self.waits.saturating_add(more.waits);
        self.untimed = self.untimed.saturating_add(more.untimed);
        self.wakes = self.wakes.saturating_add(more.wakes);
        self.holds = self.holds.saturating_add(more.holds);
    }

    /// One pair of hooks ran for each wait and each hold.
    pub fn hooked(&self) -> u64 {
        self.waits.saturating_add(self.holds)
    }
}

impl WaitRecords {
    pub fn totals(&self) -> WaitTotals {
        let untimed = self.waits.values().map(|waits| {
            let slept = slept(waits.calls, waits.at_once, waits.other);
            slept.saturating_sub(waits.timed)
        });
        let holds = self.holds.values().map(|holds| holds.calls);
        WaitTotals {
            waits: self.all_waits,
            untimed: untimed.fold(0, u64::saturating_add),
            wakes: self.all_wakes,
            holds: holds.fold(0, u64::saturating_add),
        }
    }
}
