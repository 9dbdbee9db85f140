use alloc::vec::Vec;

use crate::candidate::ReassignCause;
use crate::set::GroupSet;
use crate::unit::{Policy, Unit};
use crate::{AddError, Event, GroupId, Label, Pmu, Priority, Request, State, Target, Times, Tree};

/// A CPU's or thread's events on its PMUs. Times are in ns, of any clock that never goes back.
#[derive(Clone, Debug)]
pub struct Context<P> {
    units: Vec<Unit<P>>,
    label: Label,
    task: Task,
    policy: Policy,
}

/// A task's events. While the task runs, they are in its [`Context`].
#[derive(Clone, Debug, Default)]
pub struct Task {
    sets: Vec<GroupSet>,
}

impl Task {
    /// Returns a task without events.
    pub fn new() -> Task {
        Task::default()
    }

    /// Adds a group for this task, which must not be running. A group with more events than slots never counts.
    pub fn add(
        &mut self,
        pmu: usize,
        priority: Priority,
        events: &[Event],
    ) -> Result<GroupId, AddError> {
        if self.sets.len() <= pmu {
            self.sets.resize_with(pmu + 1, GroupSet::default);
        }
        let number = self.sets[pmu].add(priority, events, 0)?;
        Ok(GroupId {
            pmu,
            target: Target::Task,
            number,
        })
    }

    /// Returns a group's times so far.
    pub fn times(&self, id: GroupId) -> Option<Times> {
        let set = self.sets.get(id.pmu)?;
        Some(set.group(id.number)?.times(set.own_ns(0), 0))
    }

    /// Returns a group's state.
    pub fn state(&self, id: GroupId) -> Option<State> {
        Some(self.sets.get(id.pmu)?.group(id.number)?.state())
    }
}

impl<P: Pmu> Context<P> {
    /// Returns a context that runs the root label and a task without events.
    pub fn new(pmus: impl IntoIterator<Item = P>, now_ns: u64) -> Context<P> {
        let units = pmus.into_iter().map(|pmu| Unit::new(pmu, now_ns));
        Context {
            units: units.collect(),
            label: Label::ROOT,
            task: Task::default(),
            policy: Policy::default(),
        }
    }

    /// Sets which events a switch of labels touches.
    pub fn with_policy(self, policy: Policy) -> Context<P> {
        Context { policy, ..self }
    }

    /// Returns the running label.
    pub fn label(&self) -> Label {
        self.label
    }

    /// Returns a PMU by index.
    pub fn pmu(&self, pmu: usize) -> Option<&P> {
        Some(&self.units.get(pmu)?.pmu)
    }

    /// Returns mutable access to a PMU by index.
    pub fn pmu_mut(&mut self, pmu: usize) -> Option<&mut P> {
        Some(&mut self.units.get_mut(pmu)?.pmu)
    }

    /// Switches to another label. Does not allocate.
    pub fn enter(&mut self, tree: &Tree, label: Label, now_ns: u64) {
        if label == self.label {
            return;
        }
        self.label = label;
        let labelled = self.units.iter_mut().filter(|unit| !unit.homes.is_empty());
        for unit in labelled {
            unit.enter(tree, label, self.policy, now_ns);
        }
    }

    /// Switches to another task and its label, and returns the task that leaves.
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
                unit.reassign(now_ns, ReassignCause::Change);
            }
        }
        left
    }

    /// Gives waiting groups a turn; call this every few milliseconds.
    pub fn rotate(&mut self, now_ns: u64) {
        for unit in &mut self.units {
            unit.rotate(now_ns);
        }
    }

    /// Adds a group. It counts while its target runs, if it gets slots (see [`Priority`]).
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
            self.task.sets.resize_with(pmu + 1, GroupSet::default);
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

    /// Removes a group, and returns its times.
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

    /// Switches a group off.
    pub fn disable(&mut self, id: GroupId, now_ns: u64) -> Option<()> {
        let unit = self.units.get_mut(id.pmu)?;
        let (set, pmu) = unit.set_mut(id.target)?;
        set.disable(id.number, now_ns, pmu)?;
        unit.settle_for(id.target, now_ns);
        Some(())
    }

    /// Enables a group that is off or in error.
    pub fn enable(&mut self, id: GroupId, now_ns: u64) -> Option<()> {
        let unit = self.units.get_mut(id.pmu)?;
        let (set, _) = unit.set_mut(id.target)?;
        set.wake(id.number, now_ns)?;
        unit.settle_for(id.target, now_ns);
        Some(())
    }

    /// Forgets the groups of a label that will be deleted. If the label runs, switches to its parent first.
    pub fn forget(&mut self, tree: &Tree, label: Label, now_ns: u64) {
        if let Some(parent) = tree.parent(label).filter(|_| self.label == label) {
            self.enter(tree, parent, now_ns);
        }
        for unit in &mut self.units {
            unit.close(tree, label, self.label, now_ns);
        }
    }

    /// Returns a group's times so far.
    pub fn times(&self, id: GroupId, now_ns: u64) -> Option<Times> {
        let set = self.units.get(id.pmu)?.set(id.target)?;
        let group = set.group(id.number)?;
        Some(group.times(set.own_ns(now_ns), now_ns))
    }

    /// Returns a group's state.
    pub fn state(&self, id: GroupId) -> Option<State> {
        let set = self.units.get(id.pmu)?.set(id.target)?;
        Some(set.group(id.number)?.state())
    }
}
