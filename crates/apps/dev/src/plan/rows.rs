use serde::Serialize;
use tiptoe_schedule::simulate::{GroupOutcome as Fate, Outcome};

/// The result of a simulation, also as JSON.
#[derive(Debug, Serialize)]
pub struct PlanReport {
    pub slots: u32,
    pub cpus: usize,
    pub cgroups: usize,
    pub is_of_system: bool,
    pub seconds: f64,
    pub switches: u64,
    /// Whether the switches come from a file.
    pub recorded: bool,
    pub turn_ns: u64,
    pub operation_ns: u64,
    pub switch_ns: u64,
    pub charge_ns: u64,
    pub read_ns: u64,
    pub events: Vec<EventRow>,
    /// The events as `tiptoe stat --for-each-cgroup` counts them; empty if it cannot count them.
    pub read_events: Vec<EventRow>,
    pub policies: Vec<PolicyRow>,
}

/// An event's result, for all cgroups or for the system. Numbers are `None` if no task ran.
#[derive(Debug, Serialize)]
pub struct EventRow {
    pub event: String,
    /// `cgroups` or `system`.
    #[serde(rename = "for")]
    pub of: &'static str,
    /// The part of the enabled time in which the event counted.
    pub counted_percent: Option<f64>,
    /// The smallest such part of a cgroup.
    pub least_percent: Option<f64>,
    /// The number of cgroups that ran but were never counted.
    pub not_counted: usize,
    /// The number of cgroups in which the event is pinned and has no slot.
    pub in_error: usize,
    /// The median over cgroups of the scaled count's error.
    pub error_percent: Option<f64>,
    pub worst_error_percent: Option<f64>,
    pub each: Vec<CgroupTimes>,
}

#[derive(Debug, Serialize)]
pub struct CgroupTimes {
    pub cgroup: String,
    pub enabled_ns: u64,
    pub running_ns: u64,
    pub error_percent: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct PolicyRow {
    /// `everything`, `changed` or `read`.
    pub policy: &'static str,
    pub added: u64,
    pub deleted: u64,
    pub per_switch: f64,
    pub reads: u64,
    pub cost_percent: f64,
    /// The part of their time that the system's events lost at switches.
    pub blind_percent: Option<f64>,
}

impl EventRow {
    /// Percentages exclude cgroups that never ran.
    pub fn new(event: &str, of: &'static str, fates: &[(&str, Fate)]) -> EventRow {
        let each = fates
            .iter()
            .map(|(cgroup, fate)| CgroupTimes::new(cgroup, fate));
        let ran: Vec<&Fate> = fates
            .iter()
            .map(|(_, fate)| fate)
            .filter(|fate| fate.work > 0)
            .collect();
        let (running, enabled) = ran.iter().fold((0, 0), |(running, enabled), fate| {
            (
                running + fate.times.running_ns,
                enabled + fate.times.enabled_ns,
            )
        });
        let share = |fate: &&Fate| percent(fate.times.running_ns, fate.times.enabled_ns);
        let mut errors: Vec<f64> = ran.iter().filter_map(|fate| error_percent(fate)).collect();
        errors.sort_by(f64::total_cmp);
        EventRow {
            event: event.to_owned(),
            of,
            counted_percent: percent(running, enabled),
            least_percent: ran.iter().filter_map(share).min_by(f64::total_cmp),
            not_counted: ran.iter().filter(|fate| fate.times.running_ns == 0).count(),
            in_error: fates.iter().filter(|(_, fate)| fate.in_error).count(),
            error_percent: errors.get(errors.len() / 2).copied(),
            worst_error_percent: errors.last().copied(),
            each: each.collect(),
        }
    }
}

impl CgroupTimes {
    fn new(cgroup: &str, fate: &Fate) -> CgroupTimes {
        CgroupTimes {
            cgroup: cgroup.to_owned(),
            enabled_ns: fate.times.enabled_ns,
            running_ns: fate.times.running_ns,
            error_percent: error_percent(fate),
        }
    }
}

impl PolicyRow {
    /// The first `of_system` groups must be the system's.
    pub fn new(
        policy: &'static str,
        outcome: &Outcome,
        of_system: usize,
        operation_ns: u64,
    ) -> PolicyRow {
        let system = outcome.groups.iter().take(of_system);
        let (blind, enabled) = system.fold((0, 0), |(blind, enabled), fate| {
            (blind + fate.blind_ns, enabled + fate.times.enabled_ns)
        });
        let operations = outcome.operations();
        PolicyRow {
            policy,
            added: outcome.added,
            deleted: outcome.deleted,
            per_switch: operations as f64 / outcome.switches.max(1) as f64,
            reads: 0,
            cost_percent: percent(operations * operation_ns, outcome.ns).unwrap_or(0.0),
            blind_percent: percent(blind, enabled),
        }
    }

    pub fn with_reads(self, reads: u64, switch_ns: u64, outcome: &Outcome) -> PolicyRow {
        let more = percent(outcome.switches * switch_ns, outcome.ns);
        PolicyRow {
            reads,
            cost_percent: self.cost_percent + more.unwrap_or(0.0),
            ..self
        }
    }
}

/// Returns the scaled count's error; `None` if the event never counted or has no slot.
fn error_percent(fate: &Fate) -> Option<f64> {
    let has_count = fate.times.running_ns > 0 && !fate.in_error;
    let parts = fate.error().filter(|_| has_count)?;
    Some(parts as f64 / 10_000.0)
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use tiptoe_schedule::Times;

    use super::*;

    #[test]
    fn cgroups_that_never_ran_are_left_out_of_shares() {
        let fate = |enabled_ns, running_ns, work, count| Fate {
            times: Times {
                enabled_ns,
                running_ns,
            },
            work,
            count,
            ..Fate::default()
        };
        let fates = [
            ("a", fate(100, 50, 1000, 600)),
            ("b", fate(100, 0, 1000, 0)),
            ("c", fate(0, 0, 0, 0)),
        ];
        let row = EventRow::new("cycles", "cgroups", &fates);
        assert_eq!(
            (row.counted_percent, row.least_percent),
            (Some(25.0), Some(0.0))
        );
        assert_eq!((row.not_counted, row.worst_error_percent), (1, Some(20.0)));
        assert_eq!(row.each.len(), 3);
        let never = EventRow::new("cs", "cgroups", &fates[2..]);
        assert_eq!(never.counted_percent, None);
    }
}
