use alloc::vec::Vec;
use core::ops::AddAssign;

use crate::Times;

/// A simulation's result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The groups, in the order of the request.
    pub groups: Vec<GroupOutcome>,
    /// Switches of labels (cgroups or scopes).
    pub switches: u64,
    /// The simulated time of all CPUs.
    pub ns: u64,
    /// How often an event was added.
    pub added: u64,
    /// How often an event was deleted.
    pub deleted: u64,
}

/// A group's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupOutcome {
    /// How long the group was enabled, and how long it counted.
    pub times: Times,
    /// How long the group's first event was absent during switches that deleted and added it.
    pub blind_ns: u64,
    /// Whether the group is pinned and had no slot on some CPU at the end.
    pub in_error: bool,
    /// The number of counted events.
    pub count: u64,
    /// The number of all events.
    pub work: u64,
}

impl Outcome {
    /// Returns how often an event was added or deleted.
    pub fn operations(&self) -> u64 {
        self.added + self.deleted
    }
}

impl GroupOutcome {
    /// Returns a scaled count's relative error, in parts per million; `None` if the group never counted.
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
