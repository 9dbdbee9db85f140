use std::time::Duration;

use tiptoe_schedule::simulate::{
    Charges, GroupOutcome as Fate, GroupRequest, Machine, Outcome, Switch, Synthetic,
};
use tiptoe_schedule::{Label, Policy, Priority, Target};

use super::cgroups::Cgroups;
use super::events::{PlanEvent, PlanGroup};
use super::rows::{EventRow, PlanReport, PolicyRow};
use super::trace::Trace;
use crate::failure::Failure;

#[derive(Debug)]
pub struct Setting<'a> {
    pub groups: &'a [PlanGroup],
    pub cgroups: &'a Cgroups,
    pub is_of_system: bool,
    pub slots: u32,
    pub turn_ns: u64,
    pub operation_ns: u64,
    pub charge_ns: u64,
    pub read_ns: u64,
    pub seed: u64,
}

pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

impl Setting<'_> {
    /// Simulates random switches, at the same mean rate on all CPUs. Fails if a group has more events than counters.
    pub fn made_up(
        &self,
        cpus: u32,
        per_second: u32,
        time: Duration,
    ) -> Result<PlanReport, Failure> {
        let mean_ns = 1_000_000_000 / u64::from(per_second);
        let counted = self.cgroups.counted.iter().map(|(_, label)| *label);
        // The root stands for all cgroups that are not counted.
        let labels: Vec<Label> = [Label::ROOT].into_iter().chain(counted).collect();
        let seed = |cpu: usize| {
            self.seed
                .wrapping_mul(0x1_0000_0001)
                .wrapping_add(cpu as u64)
        };
        let switches = |cpu| Synthetic::new(&labels, mean_ns, seed(cpu));
        self.report(cpus as usize, time, false, switches)
    }

    /// Simulates a trace, at most to its end. Fails if a group has more events than counters.
    pub fn recorded(&self, trace: &Trace, time: Option<Duration>) -> Result<PlanReport, Failure> {
        let end = Duration::from_nanos(trace.end_ns);
        let time = time.map_or(end, |time| time.min(end));
        let switches = |cpu: usize| trace.cpus[cpu].iter().copied();
        self.report(trace.cpus.len(), time, true, switches)
    }

    fn report<T: Iterator<Item = Switch>>(
        &self,
        cpus: usize,
        time: Duration,
        is_recorded: bool,
        switches: impl Fn(usize) -> T,
    ) -> Result<PlanReport, Failure> {
        let wanted = self.wanted();
        let machine = Machine {
            tree: &self.cgroups.tree,
            groups: &wanted,
            slots: self.slots,
            turn_ns: self.turn_ns,
            operation_ns: self.operation_ns,
        };
        let end_ns = time.as_nanos() as u64;
        let seed = |cpu: usize| self.seed.wrapping_add(cpu as u64);
        let outcome = |policy| -> Result<Outcome, Failure> {
            let cpu = machine.cpu(policy).map_err(Failure::NeverCounts)?;
            let mut all = Outcome::default();
            for at in 0..cpus {
                let mut cpu = cpu.clone();
                cpu.run(switches(at), end_ns, seed(at));
                all += &cpu.outcome();
            }
            Ok(all)
        };
        let everything = outcome(Policy::Everything)?;
        let changed = outcome(Policy::Changed)?;
        let run = |charges: &mut Charges<'_>, at: usize| {
            charges.run(switches(at), end_ns, seed(at));
        };
        let read = self.read(&machine, cpus, run)?;
        let policies = [("everything", &everything), ("changed", &changed)];
        let policies = policies.map(|(policy, outcome)| {
            PolicyRow::new(
                policy,
                outcome,
                self.system_group_count(),
                self.operation_ns,
            )
        });
        let (read_events, read) = read.unzip();
        Ok(PlanReport {
            slots: self.slots,
            cpus,
            cgroups: self.cgroups.counted.len(),
            is_of_system: self.is_of_system,
            seconds: time.as_secs_f64(),
            switches: changed.switches,
            recorded: is_recorded,
            turn_ns: self.turn_ns,
            operation_ns: self.operation_ns,
            switch_ns: self.switch_ns(),
            charge_ns: self.charge_ns,
            read_ns: self.read_ns,
            events: self.rows(&changed),
            read_events: read_events.unwrap_or_default(),
            policies: policies.into_iter().chain(read).collect(),
        })
    }

    /// The system's groups must be first, because `rows` relies on this order.
    fn wanted(&self) -> Vec<GroupRequest> {
        let labels = self.cgroups.counted.iter().map(|(_, label)| *label);
        let system = self.is_of_system.then_some(Target::System);
        let targets = system.into_iter().chain(labels.map(Target::Label));
        targets
            .flat_map(|target| self.groups.iter().map(move |group| wanted(target, group)))
            .collect()
    }

    fn rows(&self, outcome: &Outcome) -> Vec<EventRow> {
        let names = self.cgroups.counted.iter().map(|(name, _)| name.as_str());
        let (system, cgroups) = outcome.groups.split_at(self.system_group_count());
        let cgroups: Vec<(&str, &[Fate])> = names.zip(cgroups.chunks(self.groups.len())).collect();
        self.rows_of(system, &cgroups, |_, fate| fate)
    }

    /// `of` computes an event's result from its group's result.
    pub(super) fn rows_of(
        &self,
        system: &[Fate],
        cgroups: &[(&str, &[Fate])],
        of: impl Fn(&PlanEvent, Fate) -> Fate,
    ) -> Vec<EventRow> {
        let mut rows = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            for event in &group.events {
                let in_cgroups = cgroups.iter();
                let in_cgroups: Vec<(&str, Fate)> = in_cgroups
                    .map(|(name, fates)| (*name, of(event, fates[at])))
                    .collect();
                if let Some(fate) = system.get(at) {
                    rows.push(EventRow::new(
                        &event.name,
                        "system",
                        &[("/", of(event, *fate))],
                    ));
                }
                if !in_cgroups.is_empty() {
                    rows.push(EventRow::new(&event.name, "cgroups", &in_cgroups));
                }
            }
        }
        rows
    }

    fn system_group_count(&self) -> usize {
        if self.is_of_system {
            self.groups.len()
        } else {
            0
        }
    }
}

/// Returns a group's request: only for the events that need counters, if the group has any, because its other events
/// count at the same times.
pub(super) fn wanted(target: Target, group: &PlanGroup) -> GroupRequest {
    let with_slots = group.events.iter().filter(|event| event.needs_slot).count();
    GroupRequest {
        target,
        priority: match group.is_pinned {
            true => Priority::Pinned,
            false => Priority::Flexible,
        },
        events: match with_slots {
            0 => group.events.len(),
            _ => with_slots,
        } as u32,
        needs_slots: with_slots > 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{cgroups::Cgroups, events};
    use super::*;

    fn report(
        list: &str,
        cgroups: &str,
        slots: u32,
        is_of_system: bool,
    ) -> Result<PlanReport, Failure> {
        let groups = events::parse(&[list.to_owned()]).unwrap();
        let cgroups = Cgroups::named(Some(cgroups)).unwrap();
        let setting = Setting {
            groups: &groups,
            cgroups: &cgroups,
            is_of_system,
            slots,
            turn_ns: 4_000_000,
            operation_ns: 100,
            charge_ns: 50,
            read_ns: 60,
            seed: 1,
        };
        setting.made_up(2, 1000, Duration::from_millis(500))
    }

    #[test]
    fn events_that_fit_count_all_the_time() {
        let report = report("cycles,instructions,cs", "a,b,a/c", 8, true).unwrap();
        assert_eq!(report.events.len(), 6);
        for row in &report.events {
            assert_eq!(
                (row.counted_percent, row.worst_error_percent),
                (Some(100.0), Some(0.0)),
                "{row:?}"
            );
        }
        let [everything, changed, read] = &report.policies[..] else {
            panic!("{report:?}");
        };
        assert_eq!(changed.blind_percent, Some(0.0));
        assert!(everything.blind_percent > Some(0.0));
        assert!(changed.per_switch < everything.per_switch);
        // The kernel counts `cs` for each task, so only two events are read.
        assert_eq!((read.reads, read.per_switch), (2, 0.0));
        let switches_per_ns = report.switches as f64 / 2.0 / 500e6;
        let cost = 100.0 * switches_per_ns * (50.0 + 2.0 * 60.0);
        assert!((read.cost_percent - cost).abs() < 1e-9, "{read:?}");
    }

    #[test]
    fn events_that_are_read_share_counters_with_no_cgroup() {
        let scheduled = report("cycles,instructions,cs", "20", 2, false).unwrap();
        assert!(scheduled.read_events.iter().all(|row| {
            row.of == "cgroups" && row.counted_percent == Some(100.0) && row.each.len() == 20
        }));
        assert_eq!(scheduled.read_events.len(), 3);
        let shared = report("cycles,instructions,branches", "20", 2, true).unwrap();
        assert_eq!(shared.read_events.len(), 6);
        for row in &shared.read_events {
            let counted = row.counted_percent.unwrap();
            assert!((60.0..73.0).contains(&counted), "{row:?}");
        }
        let sets = shared.policies.last().unwrap();
        assert!(sets.per_switch > 0.0 && sets.blind_percent == Some(0.0));
        let many = vec!["cycles"; 33].join(",");
        let many = report(&many, "a", 64, true).unwrap();
        assert!(many.read_events.is_empty() && many.policies.len() == 2);
    }

    #[test]
    fn events_that_do_not_fit_are_scaled_with_an_error() {
        let report = report("cycles,instructions,branches,cs", "20", 4, true).unwrap();
        let cycles = &report.events[1];
        assert!(
            (50.0..80.0).contains(&cycles.counted_percent.unwrap()),
            "{cycles:?}"
        );
        assert!(cycles.error_percent > Some(0.0));
        let software = report.events.last().unwrap();
        assert_eq!(software.counted_percent, Some(100.0));
    }

    #[test]
    fn pinned_events_without_a_slot_are_in_error() {
        let report = report("cycles:D,instructions:D", "a,b", 3, true).unwrap();
        let in_error = report.events.iter().map(|row| row.in_error);
        assert_eq!(in_error.collect::<Vec<_>>(), [0, 0, 0, 2]);
        assert!(report.events[3].error_percent.is_none());
    }

    #[test]
    fn a_group_that_never_fits_is_refused() {
        let refused = report("{cycles,instructions,branches}", "a", 2, true).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains("a group of 3 events for 2 slots"),
            "{refused}"
        );
    }
}
