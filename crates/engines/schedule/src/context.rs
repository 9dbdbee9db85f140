//! A CPU or a thread: what runs there now, and the PMUs that count it.

use alloc::vec::Vec;

use crate::order::Settle;
use crate::set::Set;
use crate::unit::Unit;
use crate::{AddError, Event, GroupId, Label, Pmu, Priority, Request, State, Target, Times, Tree};

/// What runs in one place now, and what of it is counted.
///
/// On a CPU a label is a cgroup, and tasks come and go; in a thread a label is a scope. Times are in ns, of any clock
/// that does not go back; each call says what it is.
#[derive(Clone, Debug)]
pub struct Context<P> {
    units: Vec<Unit<P>>,
    label: Label,
    /// Of the task that is here: its sets are in the units meanwhile.
    task: Task,
    policy: Policy,
}

/// What a switch of labels moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Events of the labels left and entered, and who loses or gains a place by that.
    #[default]
    Changed,
    /// All events of each PMU that has some of a label: to compare with.
    Everything,
}

/// The events of a task. It holds them while the task runs nowhere.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// By PMU; none where it never had any.
    sets: Vec<Set>,
}

impl Task {
    /// One without events.
    pub fn new() -> Task {
        Task::default()
    }

    /// Adds a group for this task, which runs nowhere now. One that is larger than the slots where it will run never goes
    /// on.
    pub fn add(
        &mut self,
        pmu: usize,
        priority: Priority,
        events: &[Event],
    ) -> Result<GroupId, AddError> {
        if self.sets.len() <= pmu {
            self.sets.resize_with(pmu + 1, Set::default);
        }
        // Its own time stands still.
        let number = self.sets[pmu].add(priority, events, 0)?;
        Ok(GroupId {
            pmu,
            target: Target::Task,
            number,
        })
    }

    /// For how long a group of it counted.
    pub fn times(&self, id: GroupId) -> Option<Times> {
        let set = self.sets.get(id.pmu)?;
        Some(set.group(id.number)?.times(set.own_ns(0), 0))
    }

    /// How a group of it is doing.
    pub fn state(&self, id: GroupId) -> Option<State> {
        Some(self.sets.get(id.pmu)?.group(id.number)?.state())
    }
}

impl<P: Pmu> Context<P> {
    /// The root's label runs, no task's events are there, and nothing is counted.
    pub fn new(pmus: impl IntoIterator<Item = P>, now_ns: u64) -> Context<P> {
        let units = pmus.into_iter().map(|pmu| Unit::new(pmu, now_ns));
        Context {
            units: units.collect(),
            label: Label::ROOT,
            task: Task::default(),
            policy: Policy::default(),
        }
    }

    /// The same, with another policy.
    pub fn with_policy(self, policy: Policy) -> Context<P> {
        Context { policy, ..self }
    }

    /// What runs.
    pub fn label(&self) -> Label {
        self.label
    }

    /// One of its PMUs.
    pub fn pmu(&self, pmu: usize) -> Option<&P> {
        Some(&self.units.get(pmu)?.pmu)
    }

    /// The same, to change.
    pub fn pmu_mut(&mut self, pmu: usize) -> Option<&mut P> {
        Some(&mut self.units.get_mut(pmu)?.pmu)
    }

    /// Another label runs: the cgroup switch of a CPU, the scope switch of a thread. Nothing is allocated, and PMUs that
    /// have no events of labels are not looked at.
    pub fn enter(&mut self, tree: &Tree, label: Label, now_ns: u64) {
        if label == self.label {
            return;
        }
        self.label = label;
        let labelled = self.units.iter_mut().filter(|unit| !unit.homes.is_empty());
        for unit in labelled {
            match self.policy {
                Policy::Changed => unit.enter(tree, label, now_ns),
                Policy::Everything => unit.enter_whole(tree, label, now_ns),
            }
        }
    }

    /// Another task runs, under this label: a task switch. The task that leaves.
    ///
    /// Tasks without events are no matter: then it is the switch of labels, or nothing.
    pub fn switch(&mut self, tree: &Tree, next: Task, label: Label, now_ns: u64) -> Task {
        if self.task.sets.is_empty() && next.sets.is_empty() {
            self.enter(tree, label, now_ns);
            return core::mem::replace(&mut self.task, next);
        }
        for (unit, set) in self.units.iter_mut().zip(&mut self.task.sets) {
            unit.task.leave(now_ns, &mut unit.pmu);
            core::mem::swap(&mut unit.task, set);
        }
        let left = core::mem::replace(&mut self.task, next);
        for (unit, set) in self.units.iter_mut().zip(&mut self.task.sets) {
            core::mem::swap(&mut unit.task, set);
            unit.task.arrive(now_ns);
            // Once for each task that has more than any before.
            unit.make_room();
        }
        if self.policy == Policy::Everything {
            self.enter(tree, label, now_ns);
        }
        self.label = label;
        for (pmu, unit) in self.units.iter_mut().enumerate() {
            let left = left.sets.get(pmu).is_some_and(|set| !set.is_empty());
            let to = unit.homes.nearest(tree, label);
            if left || !unit.task.is_empty() || to != unit.here {
                unit.cross(to, now_ns);
                unit.settle(now_ns, Settle::Change);
            }
        }
        left
    }

    /// Time for others, where not all have a slot: to be called each few milliseconds.
    pub fn rotate(&mut self, now_ns: u64) {
        for unit in &mut self.units {
            unit.rotate(now_ns);
        }
    }

    /// Adds a group, which counts at once if its target runs and it finds its slots. One that is pinned and does not is in
    /// error.
    pub fn add(
        &mut self,
        tree: &Tree,
        wanted: Request<'_>,
        now_ns: u64,
    ) -> Result<GroupId, AddError> {
        let Request {
            pmu,
            target,
            priority,
            events,
        } = wanted;
        let unit = self.units.get_mut(pmu).ok_or(AddError::NoPmu)?;
        let slots = unit.pmu.slots();
        if events.len() > slots as usize {
            let events = events.len();
            return Err(AddError::TooLarge { events, slots });
        }
        if events.is_empty() {
            return Err(AddError::Empty);
        }
        if matches!(target, Target::Label(label) if !tree.has(label)) {
            return Err(AddError::NoLabel);
        }
        if target == Target::Task && self.task.sets.len() <= pmu {
            self.task.sets.resize_with(pmu + 1, Set::default);
            for unit in &mut self.units[..=pmu] {
                unit.task.arrive(now_ns);
            }
        }
        let unit = &mut self.units[pmu];
        let set = unit.make_set(tree, target, self.label, now_ns);
        let number = set.add(priority, events, now_ns)?;
        let groups = set.len();
        if matches!(target, Target::Label(_)) {
            unit.homes.grew(groups);
        }
        unit.make_room();
        unit.settle_for(target, now_ns);
        Ok(GroupId {
            pmu,
            target,
            number,
        })
    }

    /// Takes a group out for good; for how long it counted.
    pub fn remove(&mut self, tree: &Tree, id: GroupId, now_ns: u64) -> Option<Times> {
        let unit = self.units.get_mut(id.pmu)?;
        let (set, pmu) = unit.set_mut(id.target)?;
        let times = set.remove(id.number, now_ns, pmu)?;
        let is_empty = set.is_empty();
        match id.target {
            Target::Label(label) if is_empty => unit.close(tree, label, self.label, now_ns),
            _ => unit.settle_for(id.target, now_ns),
        }
        Some(times)
    }

    /// Switches a group off; `None` where there is no such group.
    pub fn disable(&mut self, id: GroupId, now_ns: u64) -> Option<()> {
        let unit = self.units.get_mut(id.pmu)?;
        let (set, pmu) = unit.set_mut(id.target)?;
        set.rest(id.number, State::Off, now_ns, pmu)?;
        unit.settle_for(id.target, now_ns);
        Some(())
    }

    /// Switches a group on that is off or in error; `None` where there is no such group.
    pub fn enable(&mut self, id: GroupId, now_ns: u64) -> Option<()> {
        let unit = self.units.get_mut(id.pmu)?;
        let (set, _) = unit.set_mut(id.target)?;
        set.wake(id.number, now_ns)?;
        unit.settle_for(id.target, now_ns);
        Some(())
    }

    /// A label is about to be deleted: its groups are forgotten. Where it runs, its parent does from here on.
    pub fn forget(&mut self, tree: &Tree, label: Label, now_ns: u64) {
        if let Some(parent) = tree.parent(label).filter(|_| self.label == label) {
            self.enter(tree, parent, now_ns);
        }
        for unit in &mut self.units {
            unit.close(tree, label, self.label, now_ns);
        }
    }

    /// For how long a group counted, until now.
    pub fn times(&self, id: GroupId, now_ns: u64) -> Option<Times> {
        let set = self.units.get(id.pmu)?.set(id.target)?;
        let group = set.group(id.number)?;
        Some(group.times(set.own_ns(now_ns), now_ns))
    }

    /// How a group is doing.
    pub fn state(&self, id: GroupId) -> Option<State> {
        let set = self.units.get(id.pmu)?.set(id.target)?;
        Some(set.group(id.number)?.state())
    }
}
