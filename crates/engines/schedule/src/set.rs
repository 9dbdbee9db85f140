//! A target's groups of events on one PMU, and the target's running time.

use alloc::vec::Vec;

use crate::group::Group;
use crate::{AddError, Event, Pmu, Priority, State, Times};

/// `wanted` counts the slots of groups that are neither off nor in error; `pinned` and `running` are parts of `wanted`.
/// A change of a group updates the three sums, so that a switch need not visit each group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupSet {
    groups: Vec<Group>,
    pub(crate) wanted: u32,
    pub(crate) pinned: u32,
    pub(crate) running: u32,
    /// How long the target ran until it last stopped.
    ran_ns: u64,
    /// When the target started to run, while it runs.
    here_since: Option<u64>,
    next: u32,
}

impl GroupSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn is_here(&self) -> bool {
        self.here_since.is_some()
    }

    pub(crate) fn own_ns(&self, now_ns: u64) -> u64 {
        let here = self.here_since;
        self.ran_ns + here.map_or(0, |since| now_ns.saturating_sub(since))
    }

    /// Records that the target runs, without starting its groups.
    pub(crate) fn arrive(&mut self, now_ns: u64) {
        self.here_since.get_or_insert(now_ns);
    }

    pub(crate) fn leave(&mut self, now_ns: u64, pmu: &mut impl Pmu) {
        self.take_all_out(now_ns, pmu);
        self.ran_ns = self.own_ns(now_ns);
        self.here_since = None;
    }

    pub(crate) fn take_all_out(&mut self, now_ns: u64, pmu: &mut impl Pmu) {
        if self.running > 0 {
            for group in &mut self.groups {
                group.take_out(now_ns, pmu);
            }
            self.running = 0;
        }
    }

    /// Adds all waiting groups, pinned first. Returns whether the PMU took all.
    pub(crate) fn put_all_in(&mut self, now_ns: u64, pmu: &mut impl Pmu) -> bool {
        if self.running == self.wanted {
            return true;
        }
        for priority in [Priority::Pinned, Priority::Flexible] {
            let of = |group: &&mut Group| group.priority == priority && group.is_waiting();
            for group in self.groups.iter_mut().filter(of) {
                if group.put_in(now_ns, pmu) {
                    self.running += group.weight();
                }
            }
        }
        self.running == self.wanted
    }

    pub(crate) fn add(
        &mut self,
        priority: Priority,
        events: &[Event],
        now_ns: u64,
    ) -> Result<u32, AddError> {
        if events.is_empty() {
            return Err(AddError::Empty);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        let group = Group::new(number, priority, events, self.own_ns(now_ns));
        self.groups.push(group);
        self.want(self.groups.len() - 1);
        Ok(number)
    }

    pub(crate) fn remove(&mut self, number: u32, now_ns: u64, pmu: &mut impl Pmu) -> Option<Times> {
        self.disable(number, now_ns, pmu)?;
        let at = self.position(number)?;
        let group = self.groups.remove(at);
        Some(group.times(self.own_ns(now_ns), now_ns))
    }

    pub(crate) fn disable(&mut self, number: u32, now_ns: u64, pmu: &mut impl Pmu) -> Option<()> {
        let at = self.position(number)?;
        self.take_out(at, now_ns, pmu);
        self.rest_at(at, State::Off, now_ns);
        Some(())
    }

    pub(crate) fn rest_at(&mut self, at: usize, state: State, now_ns: u64) {
        let own_ns = self.own_ns(now_ns);
        let group = &mut self.groups[at];
        if group.is_waiting() {
            self.wanted -= group.weight();
            self.pinned -= if group.is_pinned() { group.weight() } else { 0 };
        }
        group.rest(own_ns, state);
    }

    pub(crate) fn wake(&mut self, number: u32, now_ns: u64) -> Option<()> {
        let at = self.position(number)?;
        let own_ns = self.own_ns(now_ns);
        if self.groups[at].wake(own_ns) {
            self.want(at);
        }
        Some(())
    }

    pub(crate) fn put_in(&mut self, at: usize, now_ns: u64, pmu: &mut impl Pmu) -> bool {
        let group = &mut self.groups[at];
        let is_added = group.put_in(now_ns, pmu);
        self.running += if is_added { group.weight() } else { 0 };
        is_added
    }

    pub(crate) fn take_out(&mut self, at: usize, now_ns: u64, pmu: &mut impl Pmu) {
        let group = &mut self.groups[at];
        if group.is_running() {
            group.take_out(now_ns, pmu);
            self.running -= group.weight();
        }
    }

    pub(crate) fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(self.position(number)?)
    }

    pub(crate) fn at(&self, at: usize) -> &Group {
        &self.groups[at]
    }

    pub(crate) fn groups_mut(&mut self) -> impl Iterator<Item = (usize, &mut Group)> {
        self.groups.iter_mut().enumerate()
    }

    fn want(&mut self, at: usize) {
        let group = &self.groups[at];
        self.wanted += group.weight();
        self.pinned += if group.is_pinned() { group.weight() } else { 0 };
    }

    fn position(&self, number: u32) -> Option<usize> {
        self.groups.iter().position(|group| group.number == number)
    }
}
