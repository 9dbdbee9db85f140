//! Tests that the scheduler agrees with a slow model, and keeps the crate's invariants.

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use support::Counters;
use support::model::{Model, ModelTarget};
use tiptoe_schedule::{
    Context, Event, GroupId, Label, Priority, Request, State, Target, Task, Tree,
};

const LABELS: usize = 7;
const TASKS: usize = 3;

/// The parents of labels 1 to 6: two cgroups, and cgroups inside them.
const PARENTS: [usize; LABELS - 1] = [0, 0, 1, 1, 3, 2];

#[derive(Clone, Debug)]
enum Change {
    Add(ModelTarget, bool, u32),
    Enter(usize),
    Switch(usize, usize),
    Off(usize),
    On(usize),
    Remove(usize),
    Rotate,
}

fn target() -> impl Strategy<Value = ModelTarget> {
    prop_oneof![
        3 => Just(ModelTarget::System),
        5 => (0..LABELS).prop_map(ModelTarget::Label),
        1 => Just(ModelTarget::Task(0)),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (target(), any::<bool>(), 1u32..4).prop_map(|(target, is_pinned, weight)| {
            Change::Add(target, is_pinned && weight < 3, weight)
        }),
        8 => (0..LABELS).prop_map(Change::Enter),
        2 => (0..TASKS, 0..LABELS).prop_map(|(task, label)| Change::Switch(task, label)),
        1 => any::<usize>().prop_map(Change::Off),
        1 => any::<usize>().prop_map(Change::On),
        1 => any::<usize>().prop_map(Change::Remove),
        3 => Just(Change::Rotate),
    ]
}

struct Pair {
    context: Context<Counters>,
    tree: Tree,
    tasks: Vec<Task>,
    model: Model,
    ids: Vec<(GroupId, Vec<Event>)>,
    now_ns: u64,
    events: u32,
}

impl Pair {
    fn new(slots: u32) -> Pair {
        let mut tree = Tree::new();
        for parent in PARENTS {
            tree.create(Label(parent as u32)).unwrap();
        }
        Pair {
            context: Context::new([Counters::new(slots)], 0),
            tree,
            tasks: vec![Task::new(); TASKS],
            model: Model {
                slots,
                parents: PARENTS.to_vec(),
                label: 0,
                task: 0,
                groups: Vec::new(),
            },
            ids: Vec::new(),
            now_ns: 0,
            events: 0,
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        self.model.pass(ns);
        let pmu = self.context.pmu_mut(0).unwrap();
        pmu.work += ns;
        pmu.log.clear();
    }

    fn change(&mut self, change: &Change) {
        let now = self.now_ns;
        let mut is_turn = false;
        match *change {
            Change::Add(_, _, weight) if weight > self.model.slots => return,
            Change::Add(target, is_pinned, weight) => {
                self.add(target, is_pinned, weight);
                let added = self.model.groups.last().unwrap();
                if !self.model.runs(added.target) {
                    return;
                }
            }
            Change::Enter(label) => {
                self.context.enter(&self.tree, Label(label as u32), now);
                let before = self.model.targets();
                self.model.label = label;
                if before == self.model.targets() {
                    return;
                }
            }
            Change::Switch(task, label) if task == self.model.task => {
                return self.change(&Change::Enter(label));
            }
            Change::Switch(task, label) => {
                let next = std::mem::take(&mut self.tasks[task]);
                let label_there = Label(label as u32);
                let left = self.context.switch(&self.tree, next, label_there, now);
                self.tasks[self.model.task] = left;
                let before = self.model.targets();
                (self.model.task, self.model.label) = (task, label);
                if before == self.model.targets() {
                    return;
                }
            }
            Change::Off(at) | Change::On(at) | Change::Remove(at) => {
                let at = at.checked_rem(self.ids.len());
                let Some(at) = at.filter(|at| self.can_change(*at)) else {
                    return;
                };
                self.change_group(change, at);
                if !self.model.runs(self.model.groups[at].target) {
                    return;
                }
            }
            Change::Rotate => {
                self.context.rotate(now);
                let active = self.model.active();
                is_turn = true;
                if active.iter().all(|at| self.model.groups[*at].is_running) {
                    return;
                }
            }
        }
        self.model.settle(is_turn);
    }

    fn change_group(&mut self, change: &Change, at: usize) {
        let (id, now) = (self.ids[at].0, self.now_ns);
        let group = &mut self.model.groups[at];
        if let Change::Remove(_) = change {
            let times = self.context.remove(&self.tree, id, now).unwrap();
            let of_model = (group.enabled_ns, group.running_ns);
            // The model does not know which events the PMU refuses.
            if self.context.pmu(0).unwrap().rivals.is_empty() {
                assert_eq!((times.enabled_ns, times.running_ns), of_model);
            }
            group.is_gone = true;
            return;
        }
        group.is_off = matches!(change, Change::Off(_));
        group.in_error = false;
        match group.is_off {
            true => self.context.disable(id, now).unwrap(),
            false => self.context.enable(id, now).unwrap(),
        }
    }

    fn can_change(&self, at: usize) -> bool {
        let group = &self.model.groups[at];
        let is_here = match group.target {
            ModelTarget::Task(task) => task == self.model.task,
            _ => true,
        };
        is_here && !group.is_gone
    }

    fn add(&mut self, target: ModelTarget, is_pinned: bool, weight: u32) {
        let events: Vec<Event> = (self.events..self.events + weight).map(Event).collect();
        let target = if let ModelTarget::Task(_) = target {
            ModelTarget::Task(self.model.task)
        } else {
            target
        };
        let request = Request {
            pmu: 0,
            target: match target {
                ModelTarget::System => Target::System,
                ModelTarget::Label(label) => Target::Label(Label(label as u32)),
                ModelTarget::Task(_) => Target::Task,
            },
            priority: if is_pinned {
                Priority::Pinned
            } else {
                Priority::Flexible
            },
            events: &events,
        };
        let id = self.context.add(&self.tree, request, self.now_ns).unwrap();
        self.events += weight;
        self.ids.push((id, events));
        self.model.add(target, is_pinned, weight);
    }

    fn running(&self) -> Vec<usize> {
        let counts = self.context.pmu(0).unwrap().running();
        let runs = |at: &usize| self.ids[*at].1.iter().all(|event| counts.contains(event));
        (0..self.ids.len()).filter(runs).collect()
    }

    fn touched(&self) -> BTreeSet<Event> {
        let log = &self.context.pmu(0).unwrap().log;
        log.iter().map(|(_, event)| *event).collect()
    }

    fn agree(&self) {
        assert_eq!(self.running(), self.model.running());
        for (at, group) in self.model.groups.iter().enumerate() {
            let (id, events) = &self.ids[at];
            if !self.can_change(at) {
                continue;
            }
            let times = self.context.times(*id, self.now_ns).expect("it is there");
            assert_eq!(
                (times.enabled_ns, times.running_ns),
                (group.enabled_ns, group.running_ns),
                "of {at}"
            );
            assert_eq!(
                self.context.state(*id) == Some(State::Error),
                group.in_error
            );
            for event in events {
                assert_eq!(self.context.pmu(0).unwrap().count(*event), group.running_ns);
            }
        }
    }
}

proptest! {
    #[test]
    fn it_does_what_the_slow_model_does(
        slots in 1u32..6,
        changes in proptest::collection::vec((change(), 1u64..50_000_000), 1..60),
    ) {
        let mut pair = Pair::new(slots);
        for (change, ns) in changes {
            pair.pass(ns);
            pair.change(&change);
            pair.agree();
        }
    }

    #[test]
    fn pinned_are_never_displaced_and_no_group_is_touched_in_vain(
        slots in 1u32..6,
        changes in proptest::collection::vec((change(), 1u64..50_000_000), 1..60),
    ) {
        let mut pair = Pair::new(slots);
        for (change, ns) in changes {
            pair.pass(ns);
            let before = pair.running();
            let fitted = pair.model.wanted() <= slots;
            pair.change(&change);
            let after = pair.running();
            let stays = |at: &usize| {
                let group = &pair.model.groups[*at];
                pair.model.active().contains(at) && !matches!(group.target, ModelTarget::Task(_))
            };
            for at in before.iter().filter(|at| stays(at)) {
                let group = &pair.model.groups[*at];
                prop_assert!(!group.is_pinned || after.contains(at), "a pinned group lost its place");
                // While everything fits, groups that stay are not touched.
                if fitted && pair.model.wanted() <= slots {
                    let events = &pair.ids[*at].1;
                    prop_assert!(events.iter().all(|event| !pair.touched().contains(event)));
                }
            }
            if !matches!(change, Change::Switch(..)) {
                let log = &pair.context.pmu(0).unwrap().log;
                prop_assert_eq!(pair.touched().len(), log.len(), "out and in again");
            }
        }
    }

    #[test]
    fn whatever_a_pmu_refuses_pinned_groups_count_or_are_in_error(
        slots in 1u32..6,
        rivals in proptest::collection::btree_set(0u32..30, 0..12),
        changes in proptest::collection::vec((change(), 1u64..50_000_000), 1..60),
    ) {
        let mut pair = Pair::new(slots);
        let rivals = rivals.into_iter().map(Event).collect();
        pair.context.pmu_mut(0).unwrap().rivals = rivals;
        for (change, ns) in changes {
            pair.pass(ns);
            pair.change(&change);
            let counts = pair.context.pmu(0).unwrap().running();
            for (at, (id, events)) in pair.ids.iter().enumerate() {
                let group = &pair.model.groups[at];
                let Some(state) = pair.context.state(*id).filter(|_| pair.can_change(at)) else {
                    continue;
                };
                let on = events.iter().filter(|event| counts.contains(event)).count();
                let all_or_none = if state == State::Running { events.len() } else { 0 };
                prop_assert_eq!(on, all_or_none);
                let runs = pair.model.runs(group.target);
                prop_assert!(runs || state != State::Running);
                prop_assert!(!(runs && group.is_pinned && state == State::Waiting));
            }
        }
    }

    #[test]
    fn the_system_s_events_lose_no_time_at_a_switch_while_all_fits(
        groups in proptest::collection::vec((target(), any::<bool>(), 1u32..4), 1..20),
        switches in proptest::collection::vec((0..TASKS, 0..LABELS, 1u64..1_000_000), 1..100),
    ) {
        let mut pair = Pair::new(groups.iter().map(|group| group.2).sum());
        for (target, is_pinned, weight) in groups {
            pair.add(target, is_pinned, weight);
        }
        for (task, label, ns) in switches {
            pair.pass(ns);
            pair.change(&Change::Switch(task, label));
            for (id, events) in &pair.ids {
                if id.target == Target::System {
                    let times = pair.context.times(*id, pair.now_ns).unwrap();
                    prop_assert_eq!((times.enabled_ns, times.missed_ns()), (pair.now_ns, 0));
                    prop_assert!(events.iter().all(|event| !pair.touched().contains(event)));
                }
            }
        }
    }

    #[test]
    fn a_parent_s_count_is_the_sum_of_its_own_and_its_descendants(
        switches in proptest::collection::vec((0..LABELS, 1u64..1_000_000), 1..200),
    ) {
            let mut pair = Pair::new(5);
        for label in 0..LABELS {
            pair.add(ModelTarget::Label(label), false, 1);
        }
        let mut own = [0; LABELS];
        for (label, ns) in switches {
            own[pair.model.label] += ns;
            pair.pass(ns);
            pair.change(&Change::Enter(label));
        }
        let pmu = pair.context.pmu(0).unwrap();
        let count = |label: usize| pmu.count(pair.ids[label].1[0]);
        prop_assert_eq!(count(0), pmu.work);
        for (label, own) in own.into_iter().enumerate() {
            let children = (1..LABELS).filter(|child| PARENTS[child - 1] == label);
            prop_assert_eq!(count(label), own + children.map(count).sum::<u64>());
        }
    }
}
