//! Simulates, reproducibly, which events would count in a trace of switches of labels (cgroups or scopes). CPUs share
//! nothing, so each is run separately ([`Cpu::run`]) and the outcomes are added.
//!
//! The model:
//!
//! - Which group of events has slots is exact, because the scheduler itself decides.
//! - The cost is the number of events added or deleted ([`Outcome::operations`]).
//! - Each operation takes time. So an event that a switch deletes and adds again misses what happens in between
//!   ([`GroupOutcome::blind_ns`]).
//! - Each time that a label runs, events happen at another random rate, 0.5 to 1.5 times the mean. So a scaled count
//!   has an error ([`GroupOutcome::error`]).

mod charged;
mod outcome;
mod simulated_pmu;
mod trace;

pub use charged::Charges;
pub use outcome::{GroupOutcome, Outcome};
pub use trace::{Random, Switch, Synthetic};

use alloc::vec::Vec;

use crate::{AddError, Context, Event, GroupId, Policy, Priority, Request, State, Target, Tree};
use simulated_pmu::SimulatedPmu;

/// What to count on each CPU.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// The tree of cgroups.
    pub tree: &'a Tree,
    /// The groups of events.
    pub groups: &'a [GroupRequest],
    /// The number of a CPU's counters.
    pub slots: u32,
    /// The time after which waiting groups get slots.
    pub turn_ns: u64,
    /// The time to add or delete an event.
    pub operation_ns: u64,
}

/// A requested group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupRequest {
    /// What the group counts.
    pub target: Target,
    /// Whether the group may lose its slots.
    pub priority: Priority,
    /// The number of the group's events.
    pub events: u32,
    /// Whether the events need slots; software events do not.
    pub needs_slots: bool,
}

/// A simulated CPU.
#[derive(Clone, Debug)]
pub struct Cpu<'a> {
    machine: &'a Machine<'a>,
    context: Context<SimulatedPmu>,
    ids: Vec<(GroupId, Event)>,
    work: Vec<u64>,
    now_ns: u64,
    next_turn_ns: u64,
    switches: u64,
}

impl Machine<'_> {
    /// Returns a CPU with all groups, at time 0.
    pub fn cpu(&self, policy: Policy) -> Result<Cpu<'_>, AddError> {
        let pmus = [self.slots, u32::MAX].map(|slots| SimulatedPmu::new(slots, self.operation_ns));
        let mut context = Context::new(pmus, 0).with_policy(policy);
        let mut ids = Vec::with_capacity(self.groups.len());
        let mut next = [0; 2];
        for group in self.groups {
            let pmu = usize::from(!group.needs_slots);
            let first = next[pmu];
            next[pmu] += group.events;
            let events: Vec<Event> = (first..next[pmu]).map(Event).collect();
            let request = Request {
                pmu,
                target: group.target,
                priority: group.priority,
                events: &events,
            };
            ids.push((context.add(self.tree, request, 0)?, Event(first)));
        }
        let mut cpu = Cpu {
            machine: self,
            context,
            ids,
            work: alloc::vec![0; self.tree.len()],
            now_ns: 0,
            next_turn_ns: self.turn_ns.max(1),
            switches: 0,
        };
        cpu.each_pmu(SimulatedPmu::begin);
        Ok(cpu)
    }
}

impl Cpu<'_> {
    /// Runs switches, in order of time, until `end_ns`.
    pub fn run(&mut self, switches: impl IntoIterator<Item = Switch>, end_ns: u64, seed: u64) {
        self.run_each(switches, end_ns, seed, |_| {});
    }

    fn run_each(
        &mut self,
        switches: impl IntoIterator<Item = Switch>,
        end_ns: u64,
        seed: u64,
        mut leave: impl FnMut(&Self),
    ) {
        let mut rates = Random::new(seed);
        // Events per 1024 ns.
        let mut rate = rates.between(512, 1536);
        for switch in switches {
            if switch.at_ns >= end_ns {
                break;
            }
            self.pass_to(switch.at_ns, rate);
            leave(self);
            self.each_pmu(SimulatedPmu::switch);
            self.context
                .enter(self.machine.tree, switch.label, self.now_ns);
            self.switches += 1;
            rate = rates.between(512, 1536);
        }
        self.pass_to(end_ns, rate);
        leave(self);
    }

    fn pass_to(&mut self, to_ns: u64, rate: u64) {
        while self.next_turn_ns <= to_ns {
            let turn_ns = self.next_turn_ns;
            self.work_to(turn_ns, rate);
            self.each_pmu(SimulatedPmu::switch);
            self.context.rotate(turn_ns);
            self.next_turn_ns += self.machine.turn_ns.max(1);
        }
        self.work_to(to_ns, rate);
    }

    fn work_to(&mut self, to_ns: u64, rate: u64) {
        let work = to_ns.saturating_sub(self.now_ns) * rate;
        self.now_ns = self.now_ns.max(to_ns);
        for label in self.machine.tree.path(self.context.label()) {
            self.work[label.0 as usize] += work;
        }
        self.each_pmu(|pmu| pmu.work(work));
    }

    fn each_pmu(&mut self, mut with: impl FnMut(&mut SimulatedPmu)) {
        for pmu in 0..2 {
            if let Some(pmu) = self.context.pmu_mut(pmu) {
                with(pmu);
            }
        }
    }

    /// Returns the outcome so far.
    pub fn outcome(&self) -> Outcome {
        let of_group = |((id, event), group): (&(GroupId, Event), &GroupRequest)| {
            let pmu = self.context.pmu(id.pmu);
            let work = match group.target {
                Target::Label(label) => self.work[label.0 as usize],
                _ => self.work[0],
            };
            GroupOutcome {
                times: self.context.times(*id, self.now_ns).unwrap_or_default(),
                blind_ns: pmu.map_or(0, |pmu| pmu.blind_ns(*event)),
                in_error: self.context.state(*id) == Some(State::Error),
                count: pmu.map_or(0, |pmu| pmu.count(*event)),
                work,
            }
        };
        let groups = self.ids.iter().zip(self.machine.groups).map(of_group);
        let pmus = || (0..2).filter_map(|pmu| self.context.pmu(pmu));
        Outcome {
            groups: groups.collect(),
            switches: self.switches,
            ns: self.now_ns,
            added: pmus().map(|pmu| pmu.added).sum(),
            deleted: pmus().map(|pmu| pmu.deleted).sum(),
        }
    }
}

#[cfg(test)]
mod tests;
