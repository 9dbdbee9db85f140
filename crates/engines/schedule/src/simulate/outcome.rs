//! What came of it.

use alloc::vec::Vec;
use core::ops::AddAssign;

use crate::Times;

/// What became of the groups, and what that took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// In the order in which they were given.
    pub groups: Vec<Group>,
    /// Switches of labels.
    pub switches: u64,
    /// For how long it ran; of several CPUs, all together.
    pub ns: u64,
    /// How often an event was added to the PMU.
    pub added: u64,
    /// How often one was deleted from it.
    pub deleted: u64,
}

/// What became of one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// For how long it counted, of how long.
    pub times: Times,
    /// How long its first event was out while a switch took it out and put it in again: not in `times`, as no one
    /// knows of it.
    pub blind_ns: u64,
    /// Whether it was pinned and found no slot, on some CPU.
    pub in_error: bool,
    /// What it counted.
    pub count: u64,
    /// What there was to count.
    pub work: u64,
}

impl Outcome {
    /// All operations on PMUs.
    pub fn operations(&self) -> u64 {
        self.added + self.deleted
    }
}

impl Group {
    /// By how much its count is off when it is scaled up, in parts of a million; `None` where it never counted, though there
    /// was something to count.
    pub fn error(&self) -> Option<u64> {
        let scaled = self.times.scaled(self.count)?;
        let off = u128::from(scaled.abs_diff(self.work)) * 1_000_000;
        let parts = off.checked_div(u128::from(self.work)).unwrap_or(0);
        Some(u64::try_from(parts).unwrap_or(u64::MAX))
    }
}

/// Another CPU of the same machine.
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
