//! A PMU, and the groups of events that a CPU or thread has on it.

use alloc::vec::Vec;

use crate::candidate::{Candidate, ReassignCause, SetId};
use crate::homes::{HomeIndex, Homes};
use crate::set::GroupSet;
use crate::{Label, Pmu, State, Target, Tree};

/// What a switch of labels (cgroups or scopes) deletes and adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Events of the labels left and entered, and of groups that gain or lose slots.
    #[default]
    Changed,
    /// All events of PMUs that have groups of labels. For comparison only.
    Everything,
}

/// INVARIANT between two calls. A *home* is a label with groups; *present* are the groups of the system, of the task,
/// of `here` and of the homes above.
///
/// 1. Only present groups count, and those that count fit the slots.
/// 2. While all present groups fit, all count, unless the PMU refuses some.
/// 3. Each present pinned group counts, or is in error.
#[derive(Clone, Debug)]
pub(crate) struct Unit<P> {
    pub(crate) pmu: P,
    pub(crate) system: GroupSet,
    pub(crate) task: GroupSet,
    pub(crate) homes: Homes,
    /// The running label's home, or the nearest home above.
    pub(crate) here: HomeIndex,
    /// Empty between calls, but kept, so that a switch does not allocate.
    pub(crate) order: Vec<Candidate>,
}

impl<P: Pmu> Unit<P> {
    pub(crate) fn new(pmu: P, now_ns: u64) -> Unit<P> {
        let mut system = GroupSet::default();
        system.arrive(now_ns);
        Unit {
            pmu,
            system,
            task: GroupSet::default(),
            homes: Homes::default(),
            here: None,
            order: Vec::new(),
        }
    }

    pub(crate) fn enter(&mut self, tree: &Tree, label: Label, policy: Policy, now_ns: u64) {
        let to = self.homes.nearest(tree, label);
        if to != self.here {
            if policy == Policy::Everything {
                self.each_set(|set, pmu| set.take_all_out(now_ns, pmu));
            }
            self.cross(to, now_ns);
            self.reassign(now_ns, ReassignCause::Change);
        }
    }

    /// Leaves the homes that contain `here` but not `to`, and enters those that contain `to` but not `here`. Starts no
    /// group.
    pub(crate) fn cross(&mut self, to: HomeIndex, now_ns: u64) {
        let common = self.homes.common(self.here, to);
        let mut at = self.here;
        while let Some(left) = at.filter(|_| at != common) {
            self.homes.set_mut(left).leave(now_ns, &mut self.pmu);
            at = self.homes.up(left);
        }
        let mut at = to;
        while let Some(entered) = at.filter(|_| at != common) {
            self.homes.set_mut(entered).arrive(now_ns);
            at = self.homes.up(entered);
        }
        self.here = to;
    }

    /// Restores the invariant.
    pub(crate) fn reassign(&mut self, now_ns: u64, why: ReassignCause) {
        let slots = self.pmu.slots();
        if self.sum(|set| set.wanted) <= slots {
            let mut all = true;
            self.each_set(|set, pmu| all &= set.put_all_in(now_ns, pmu));
            if all {
                return;
            }
        }
        if self.sum(|set| set.pinned) > slots {
            self.fail_pinned(now_ns);
        }
        self.place_by_order(now_ns, why);
    }

    /// Restores the invariant after a change of `target`'s groups.
    pub(crate) fn settle_for(&mut self, target: Target, now_ns: u64) {
        if self.set(target).is_some_and(GroupSet::is_here) {
            self.reassign(now_ns, ReassignCause::Change);
        }
    }

    pub(crate) fn rotate(&mut self, now_ns: u64) {
        if self.sum(|set| set.wanted) > self.sum(|set| set.running) {
            self.reassign(now_ns, ReassignCause::Turn);
        }
    }

    pub(crate) fn set(&self, target: Target) -> Option<&GroupSet> {
        match target {
            Target::System => Some(&self.system),
            Target::Task => Some(&self.task),
            Target::Label(label) => self.homes.of(label).map(|at| self.homes.set(at)),
        }
    }

    pub(crate) fn set_mut(&mut self, target: Target) -> Option<(&mut GroupSet, &mut P)> {
        let set = match target {
            Target::System => &mut self.system,
            Target::Task => &mut self.task,
            Target::Label(label) => {
                let at = self.homes.of(label)?;
                self.homes.set_mut(at)
            }
        };
        Some((set, &mut self.pmu))
    }

    pub(crate) fn make_set(
        &mut self,
        tree: &Tree,
        target: Target,
        running: Label,
        now_ns: u64,
    ) -> &mut GroupSet {
        match target {
            Target::System => &mut self.system,
            Target::Task => &mut self.task,
            Target::Label(label) => {
                let is_new = self.homes.of(label).is_none();
                let at = self.homes.make(tree, label);
                if is_new && tree.path(running).any(|above| above == label) {
                    self.homes.set_mut(at).arrive(now_ns);
                }
                self.here = self.homes.nearest(tree, running);
                self.homes.set_mut(at)
            }
        }
    }

    pub(crate) fn close(&mut self, tree: &Tree, label: Label, running: Label, now_ns: u64) {
        if let Some(at) = self.homes.of(label) {
            let set = self.homes.set_mut(at);
            let was_here = set.is_here();
            set.leave(now_ns, &mut self.pmu);
            self.homes.close(tree, label);
            self.here = self.homes.nearest(tree, running);
            if was_here {
                self.reassign(now_ns, ReassignCause::Change);
            }
        }
    }

    pub(crate) fn make_room(&mut self) {
        let most = self.system.len() + self.task.len() + self.homes.most_groups();
        self.order.reserve(most.saturating_sub(self.order.len()));
    }

    fn each_set(&mut self, mut visit: impl FnMut(&mut GroupSet, &mut P)) {
        visit(&mut self.system, &mut self.pmu);
        let mut at = self.here;
        while let Some(home) = at {
            visit(self.homes.set_mut(home), &mut self.pmu);
            at = self.homes.up(home);
        }
        visit(&mut self.task, &mut self.pmu);
    }

    pub(crate) fn sum(&self, of: impl Fn(&GroupSet) -> u32) -> u32 {
        let homes = self.homes.way(self.here);
        let labels = homes.map(|at| of(self.homes.set(at))).sum::<u32>();
        of(&self.system) + labels + of(&self.task)
    }

    pub(crate) fn set_of(&mut self, place: SetId) -> (&mut GroupSet, &mut P) {
        let set = match place {
            SetId::System => &mut self.system,
            SetId::Home(at) => self.homes.set_mut(at),
            SetId::Task => &mut self.task,
        };
        (set, &mut self.pmu)
    }

    /// Puts pinned groups without slots in error.
    #[cold]
    fn fail_pinned(&mut self, now_ns: u64) {
        let mut room = self.pmu.slots();
        let mut order = self.ordered(now_ns, ReassignCause::Change);
        for candidate in order.iter().filter(|candidate| candidate.is_pinned()) {
            let (set, _) = self.set_of(candidate.set);
            match room.checked_sub(set.at(candidate.group).weight()) {
                Some(left) => room = left,
                None => set.rest_at(candidate.group, State::Error, now_ns),
            }
        }
        order.clear();
        self.order = order;
    }
}
