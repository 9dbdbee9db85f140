//! From what was asked for to what comes of it.

use std::time::Duration;

use serde::Serialize;
use tiptoe_schedule::simulate::{Group as Fate, Machine, Outcome, Switch, Synthetic, Wanted};
use tiptoe_schedule::{AddError, Label, Policy, Priority, Target};

use super::cgroups::Cgroups;
use super::events::{Event, Group};
use super::trace::Trace;
use crate::failure::Failure;

/// What is to be simulated.
#[derive(Debug)]
pub struct Setting<'a> {
    pub groups: &'a [Group],
    pub cgroups: &'a Cgroups,
    pub is_of_system: bool,
    pub slots: u32,
    pub turn_ns: u64,
    pub operation_ns: u64,
    pub seed: u64,
}

/// What came of it. Serialized, the keys are the fields' names.
#[derive(Debug, Serialize)]
pub struct Report {
    pub slots: u32,
    pub cpus: usize,
    pub cgroups: usize,
    pub is_of_system: bool,
    pub seconds: f64,
    pub switches: u64,
    /// Whether the switches are out of a file.
    pub recorded: bool,
    pub turn_ns: u64,
    pub operation_ns: u64,
    pub events: Vec<Row>,
    pub policies: Vec<PolicyRow>,
}

/// One event, for all cgroups or for the system.
#[derive(Debug, Serialize)]
pub struct Row {
    pub event: String,
    /// `cgroups` or `system`.
    #[serde(rename = "for")]
    pub of: &'static str,
    /// Of the time in which it could have.
    pub counted_percent: Option<f64>,
    pub least_percent: Option<f64>,
    /// Cgroups that ran and of which it counted nothing.
    pub not_counted: usize,
    /// Cgroups in which it was pinned and found no slot.
    pub in_error: usize,
    /// By how much its scaled count is off: of half of the cgroups less.
    pub error_percent: Option<f64>,
    pub worst_error_percent: Option<f64>,
    pub each: Vec<Each>,
}

/// One event in one cgroup.
#[derive(Debug, Serialize)]
pub struct Each {
    pub cgroup: String,
    pub enabled_ns: u64,
    pub running_ns: u64,
    pub error_percent: Option<f64>,
}

/// What one way of switching takes.
#[derive(Debug, Serialize)]
pub struct PolicyRow {
    /// `everything` or `changed`.
    pub policy: &'static str,
    pub added: u64,
    pub deleted: u64,
    pub per_switch: f64,
    pub cost_percent: f64,
    /// Of the system's events: of their time, how much they were out while they were switched.
    pub blind_percent: Option<f64>,
}

/// This machine's.
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32)
}

impl Setting<'_> {
    /// With switches that are made up, alike on all CPUs.
    pub fn made_up(&self, cpus: u32, per_second: u32, time: Duration) -> Result<Report, Failure> {
        let mean_ns = 1_000_000_000 / u64::from(per_second);
        let counted = self.cgroups.counted.iter().map(|(_, label)| *label);
        // What is in none of them runs, too.
        let labels: Vec<Label> = [Label::ROOT].into_iter().chain(counted).collect();
        let seed = |cpu: usize| {
            self.seed
                .wrapping_mul(0x1_0000_0001)
                .wrapping_add(cpu as u64)
        };
        let switches = |cpu| Synthetic::new(&labels, mean_ns, seed(cpu));
        self.report(cpus as usize, time, false, switches)
    }

    /// With those of a trace.
    pub fn recorded(&self, trace: &Trace, time: Option<Duration>) -> Result<Report, Failure> {
        let end = Duration::from_nanos(trace.end_ns);
        let time = time.map_or(end, |time| time.min(end));
        let switches = |cpu: usize| trace.cpus[cpu].iter().copied();
        self.report(trace.cpus.len(), time, true, switches)
    }

    fn report<T: Iterator<Item = Switch>>(
        &self,
        cpus: usize,
        time: Duration,
        recorded: bool,
        switches: impl Fn(usize) -> T,
    ) -> Result<Report, Failure> {
        let parts = self.parts();
        let wanted = self.wanted(&parts);
        let machine = Machine {
            tree: &self.cgroups.tree,
            groups: &wanted,
            slots: self.slots,
            turn_ns: self.turn_ns,
            operation_ns: self.operation_ns,
        };
        let end_ns = time.as_nanos() as u64;
        let outcome = |policy| -> Result<Outcome, Failure> {
            let cpu = machine.cpu(policy).map_err(refused)?;
            let mut all = Outcome::default();
            for at in 0..cpus {
                let seed = self.seed.wrapping_add(at as u64);
                let mut cpu = cpu.clone();
                cpu.run(switches(at), end_ns, seed);
                all += &cpu.outcome();
            }
            Ok(all)
        };
        let everything = outcome(Policy::Everything)?;
        let changed = outcome(Policy::Changed)?;
        let policies = [("everything", &everything), ("changed", &changed)];
        Ok(Report {
            slots: self.slots,
            cpus,
            cgroups: self.cgroups.counted.len(),
            is_of_system: self.is_of_system,
            seconds: time.as_secs_f64(),
            switches: changed.switches,
            recorded,
            turn_ns: self.turn_ns,
            operation_ns: self.operation_ns,
            events: self.rows(&parts, &changed),
            policies: policies
                .map(|(policy, outcome)| self.policy(policy, outcome, &parts))
                .into(),
        })
    }

    /// Groups by what they need: software's events of a group count whatever the others do.
    fn parts(&self) -> Vec<(Wanted, Vec<&Event>)> {
        let part = |group: &'_ Group, needs_slots| {
            let events = group
                .events
                .iter()
                .filter(|event| event.needs_slot == needs_slots);
            events.count() as u32
        };
        let mut parts = Vec::new();
        for group in self.groups {
            for needs_slots in [true, false] {
                let events = group
                    .events
                    .iter()
                    .filter(|event| event.needs_slot == needs_slots);
                let wanted = Wanted {
                    target: Target::System,
                    priority: if group.is_pinned {
                        Priority::Pinned
                    } else {
                        Priority::Flexible
                    },
                    events: part(group, needs_slots),
                    needs_slots,
                };
                if wanted.events > 0 {
                    parts.push((wanted, events.collect()));
                }
            }
        }
        parts
    }

    /// The system's first, where it is asked for, then each cgroup's.
    fn wanted(&self, parts: &[(Wanted, Vec<&Event>)]) -> Vec<Wanted> {
        let system = self.is_of_system.then_some(Target::System);
        let cgroups = self
            .cgroups
            .counted
            .iter()
            .map(|(_, label)| Target::Label(*label));
        let all = system.into_iter().chain(cgroups);
        all.flat_map(|target| {
            parts
                .iter()
                .map(move |(wanted, _)| Wanted { target, ..*wanted })
        })
        .collect()
    }

    fn rows(&self, parts: &[(Wanted, Vec<&Event>)], outcome: &Outcome) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut targets = outcome.groups.chunks(parts.len().max(1));
        let system = if self.is_of_system {
            targets.next()
        } else {
            None
        };
        let cgroups: Vec<(&str, &[Fate])> = self
            .cgroups
            .counted
            .iter()
            .map(|(name, _)| name.as_str())
            .zip(targets)
            .collect();
        for (part, (_, events)) in parts.iter().enumerate() {
            for event in events {
                if let Some(system) = system {
                    rows.push(row(event, "system", &[("/", system[part])]));
                }
                if !cgroups.is_empty() {
                    let fates: Vec<(&str, Fate)> = cgroups
                        .iter()
                        .map(|(name, fates)| (*name, fates[part]))
                        .collect();
                    rows.push(row(event, "cgroups", &fates));
                }
            }
        }
        rows
    }

    fn policy(
        &self,
        policy: &'static str,
        outcome: &Outcome,
        parts: &[(Wanted, Vec<&Event>)],
    ) -> PolicyRow {
        let operations = outcome.operations() as f64;
        let system = outcome
            .groups
            .iter()
            .take(if self.is_of_system { parts.len() } else { 0 });
        let (blind, enabled) = system.fold((0, 0), |(blind, enabled), fate| {
            (blind + fate.blind_ns, enabled + fate.times.enabled_ns)
        });
        PolicyRow {
            policy,
            added: outcome.added,
            deleted: outcome.deleted,
            per_switch: operations / (outcome.switches.max(1) as f64),
            cost_percent: percent(operations * self.operation_ns as f64, outcome.ns as f64)
                .unwrap_or(0.0),
            blind_percent: percent(blind as f64, enabled as f64),
        }
    }
}

fn row(event: &Event, of: &'static str, fates: &[(&str, Fate)]) -> Row {
    let ran = || {
        fates
            .iter()
            .map(|(_, fate)| fate)
            .filter(|fate| fate.work > 0)
    };
    let share = |fate: &Fate| percent(fate.times.running_ns as f64, fate.times.enabled_ns as f64);
    let sum = |of: fn(&Fate) -> u64| fates.iter().map(|(_, fate)| of(fate) as f64).sum::<f64>();
    let mut errors: Vec<f64> = ran().filter_map(error_percent).collect();
    errors.sort_by(f64::total_cmp);
    let each = |(name, fate): &(&str, Fate)| Each {
        cgroup: (*name).to_owned(),
        enabled_ns: fate.times.enabled_ns,
        running_ns: fate.times.running_ns,
        error_percent: error_percent(fate),
    };
    Row {
        event: event.name.clone(),
        of,
        counted_percent: percent(
            sum(|fate| fate.times.running_ns),
            sum(|fate| fate.times.enabled_ns),
        ),
        least_percent: ran().filter_map(share).min_by(f64::total_cmp),
        not_counted: ran().filter(|fate| fate.times.running_ns == 0).count(),
        in_error: fates.iter().filter(|(_, fate)| fate.in_error).count(),
        error_percent: errors.get(errors.len() / 2).copied(),
        worst_error_percent: errors.last().copied(),
        each: each_of(fates, each),
    }
}

fn each_of<'a>(fates: &[(&'a str, Fate)], each: impl Fn(&(&'a str, Fate)) -> Each) -> Vec<Each> {
    fates.iter().map(each).collect()
}

/// Of one that counted while its target ran; in error it tells nothing.
fn error_percent(fate: &Fate) -> Option<f64> {
    let tells = fate.times.running_ns > 0 && !fate.in_error;
    let parts = fate.error().filter(|_| tells)?;
    Some(parts as f64 / 10_000.0)
}

fn percent(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| 100.0 * part / whole)
}

fn refused(error: AddError) -> Failure {
    Failure::new(format!("this can never count: {error}")).hint("smaller {groups}, or more --slots")
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
    ) -> Result<Report, Failure> {
        let groups = events::parse(&[list.to_owned()]).unwrap();
        let cgroups = Cgroups::named(Some(cgroups)).unwrap();
        let setting = Setting {
            groups: &groups,
            cgroups: &cgroups,
            is_of_system,
            slots,
            turn_ns: 4_000_000,
            operation_ns: 100,
            seed: 1,
        };
        setting.made_up(2, 1000, Duration::from_millis(500))
    }

    #[test]
    fn what_fits_counts_all_the_time() {
        let report = report("cycles,instructions,cs", "a,b,a/c", 8, true).unwrap();
        assert_eq!(report.events.len(), 6);
        for row in &report.events {
            assert_eq!(
                (row.counted_percent, row.worst_error_percent),
                (Some(100.0), Some(0.0)),
                "{row:?}"
            );
        }
        let [everything, changed] = &report.policies[..] else {
            panic!("{report:?}");
        };
        assert_eq!(changed.blind_percent, Some(0.0));
        assert!(everything.blind_percent > Some(0.0));
        assert!(changed.per_switch < everything.per_switch);
    }

    #[test]
    fn what_does_not_fit_is_scaled_and_off_by_something() {
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
    fn pinned_events_that_find_no_slot_are_in_error() {
        let report = report("cycles:D,instructions:D", "a,b", 3, true).unwrap();
        let in_error = report.events.iter().map(|row| row.in_error);
        assert_eq!(in_error.collect::<Vec<_>>(), [0, 0, 0, 2]);
        assert!(report.events[3].error_percent.is_none());
    }

    #[test]
    fn a_group_that_never_fits_is_refused() {
        let refused = format!(
            "{:?}",
            report("{cycles,instructions,branches}", "a", 2, true).unwrap_err()
        );
        assert!(
            refused.contains("a group of 3 events for 2 slots"),
            "{refused}"
        );
    }
}
