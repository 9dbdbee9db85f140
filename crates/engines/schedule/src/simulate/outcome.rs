//! The result of a simulation.

use alloc::vec::Vec;
use core::ops::AddAssign;

use crate::Times;

/// The groups' results, and the operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In the order of the request.
    pub groups: Vec<GroupOutcome>,
    /// The number of switches between labels.
    pub switches: u64,
    /// The simulated time, summed over CPUs.
    pub ns: u64,
    /// The number of times that an event was added to the PMU.
    pub added: u64,
    /// The number of times that an event was deleted from the PMU.
    pub deleted: u64,
}

/// The result of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupOutcome {
    /// How long the group was enabled, and how long it counted.
    pub times: Times,
    /// How long the group's first event was deleted within switches that added it again. Not in
    /// `times`, because a real scheduler does not know that time.
    pub blind_ns: u64,
    /// Whether the group was pinned and without a slot on some CPU.
    pub in_error: bool,
    /// The events that the group counted.
    pub count: u64,
    /// The events that happened, counted or not.
    pub work: u64,
}

impl Outcome {
    /// Returns the number of PMU operations.
    pub fn operations(&self) -> u64 {
        self.added + self.deleted
    }
}

impl GroupOutcome {
    /// Returns the relative error of the group's scaled count, in parts per million; `None` if it
    /// missed all events.
    pub fn error(&self) -> Option<u64> {
        let scaled = self.times.scaled(self.count)?;
        let off = u128::from(scaled.abs_diff(self.work)) * 1_000_000;
        let parts = off.checked_div(u128::from(self.work)).unwrap_or(0);
        Some(u64::try_from(parts).unwrap_or(u64::MAX))
    }
}

/// Adds the outcome of another CPU of the same machine.
impl AddAssign<&Outcome> for Outcome {
    fn add_assign(&mut self, other: &Outcome) {
        if self.groups.is_empty() {
            self.groups.clone_from(&other.groups);
        } else {
            for (group, other) in self.groups.iter_mut().zip(&other.groups) {
                group.times += other.times;
                group.blind_ns += other.blind_ns;
                group.in_error |= other.in_error;
                group.count += other.count;
                group.work += other.work;
            }
        }
        self.switches += other.switches;
        self.ns += other.ns;
        self.added += other.added;
        self.deleted += other.deleted;
    }
}
