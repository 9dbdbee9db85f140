//! What a simulation came to, in the terms of the events that were asked for.

use serde::Serialize;
use tiptoe_schedule::simulate::{Group as Fate, Outcome};

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
    pub switch_ns: u64,
    pub charge_ns: u64,
    pub read_ns: u64,
    pub events: Vec<Row>,
    /// The same as `tiptoe stat` counts them: of cgroups, with as many as it can read.
    pub read_events: Vec<Row>,
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
    /// Of the cgroup in which that was least.
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
    /// `everything`, `changed` or `read`.
    pub policy: &'static str,
    pub added: u64,
    pub deleted: u64,
    pub per_switch: f64,
    /// Events that are read at a switch.
    pub reads: u64,
    pub cost_percent: f64,
    /// Of the system's events: of their time, how much they were out while they were switched.
    pub blind_percent: Option<f64>,
}

impl Row {
    /// Of an event that fared like this in each of these cgroups, or in the system.
    pub fn new(event: &str, of: &'static str, fates: &[(&str, Fate)]) -> Row {
        let each = fates.iter().map(|(cgroup, fate)| Each::new(cgroup, fate));
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
        Row {
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

impl Each {
    fn new(cgroup: &str, fate: &Fate) -> Each {
        Each {
            cgroup: cgroup.to_owned(),
            enabled_ns: fate.times.enabled_ns,
            running_ns: fate.times.running_ns,
            error_percent: error_percent(fate),
        }
    }
}

impl PolicyRow {
    /// Of an outcome, whose first groups are the system's.
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

    /// The same where each switch takes so long, too, and so many events are read there.
    pub fn with_reads(self, reads: u64, switch_ns: u64, outcome: &Outcome) -> PolicyRow {
        let more = percent(outcome.switches * switch_ns, outcome.ns);
        PolicyRow {
            reads,
            cost_percent: self.cost_percent + more.unwrap_or(0.0),
            ..self
        }
    }
}

/// Of one that counted while its target ran; in error it tells nothing.
fn error_percent(fate: &Fate) -> Option<f64> {
    let tells = fate.times.running_ns > 0 && !fate.in_error;
    let parts = fate.error().filter(|_| tells)?;
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
    fn cgroups_that_did_not_run_say_nothing() {
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
        let row = Row::new("cycles", "cgroups", &fates);
        assert_eq!(
            (row.counted_percent, row.least_percent),
            (Some(25.0), Some(0.0))
        );
        assert_eq!((row.not_counted, row.worst_error_percent), (1, Some(20.0)));
        assert_eq!(row.each.len(), 3);
        assert_eq!(Row::new("cs", "cgroups", &fates[2..]).counted_percent, None);
    }
}
