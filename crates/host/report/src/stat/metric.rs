//! Metrics: a count as a rate, a ratio to another count, or a share of the CPUs.

use std::collections::BTreeMap;
use std::fmt;

use tiptoe_session::{Count, CountState};

use crate::columns::columns;
use crate::printable;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metric {
    pub(super) number: String,
    pub(super) unit: String,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.unit)
    }
}

/// Counts by cgroup and CPU, because a metric may only compare counts of one cgroup on one CPU.
#[derive(Debug)]
pub(super) struct GroupedCounts<'a> {
    groups: BTreeMap<GroupKey, Vec<&'a Count>>,
    /// The width of the cgroups' column; `None` if counts are not by cgroup.
    cgroup_columns: Option<usize>,
    elapsed_ns: f64,
}

/// The cgroup, whether it was removed, and the CPU.
type GroupKey = (Option<String>, bool, Option<u32>);

fn group_key(count: &Count) -> GroupKey {
    (count.cgroup.clone(), count.is_removed, count.cpu)
}

/// An event, the event that includes it, and the unit of the share.
const PARTS: &[(&str, &str, &str)] = &[
    ("branch-misses", "branches", "of all branches"),
    ("cache-misses", "cache-references", "of all cache refs"),
    (
        "L1-dcache-load-misses",
        "L1-dcache-loads",
        "of all L1-dcache accesses",
    ),
    (
        "L1-icache-load-misses",
        "L1-icache-loads",
        "of all L1-icache accesses",
    ),
    ("LLC-load-misses", "LLC-loads", "of all LL-cache accesses"),
    (
        "dTLB-load-misses",
        "dTLB-loads",
        "of all dTLB cache accesses",
    ),
    (
        "iTLB-load-misses",
        "iTLB-loads",
        "of all iTLB cache accesses",
    ),
    ("stalled-cycles-frontend", "cycles", "frontend cycles idle"),
    ("stalled-cycles-backend", "cycles", "backend cycles idle"),
];

/// An event's alias, and the name that this module uses.
const ALIASES: &[(&str, &str)] = &[
    ("cpu-cycles", "cycles"),
    ("branch-instructions", "branches"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
];

/// Splits an event into its name (an alias is replaced) and its modifiers. Only counts with equal modifiers may be
/// compared, because a modifier such as `:u` restricts what is counted.
fn plain(event: &str) -> (&str, &str) {
    let (name, modifiers) = event.split_once(':').unwrap_or((event, ""));
    let alias = ALIASES.iter().find(|(other, _)| *other == name);
    (alias.map_or(name, |(_, name)| name), modifiers)
}

fn cgroup(count: &Count) -> Option<String> {
    let name = count.cgroup.as_ref()?;
    Some(match count.is_removed {
        true => format!("{name} (removed)"),
        false => name.clone(),
    })
}

impl<'a> GroupedCounts<'a> {
    pub(super) fn of(counts: &'a [Count], elapsed_ns: f64) -> GroupedCounts<'a> {
        let mut groups: BTreeMap<GroupKey, Vec<&'a Count>> = BTreeMap::new();
        for count in counts {
            groups.entry(group_key(count)).or_default().push(count);
        }
        let names = counts.iter().filter_map(cgroup);
        GroupedCounts {
            cgroup_columns: names.map(|name| columns(&printable(&name))).max(),
            groups,
            elapsed_ns,
        }
    }

    /// Returns the name of a count's cgroup, empty for the whole system; `None` if counts are not by cgroup.
    pub(super) fn cgroup(&self, count: &Count) -> Option<String> {
        self.cgroup_columns?;
        Some(cgroup(count).unwrap_or_default())
    }

    pub(super) fn cgroup_columns(&self) -> usize {
        self.cgroup_columns.unwrap_or(0)
    }

    fn same_group(&self, count: &Count) -> impl Iterator<Item = &'a Count> {
        let group = self.groups.get(&group_key(count));
        group.into_iter().flatten().copied()
    }

    /// `None` if the event was not counted, or the count to compare with is missing or 0.
    pub(super) fn metric(&self, count: &Count) -> Option<Metric> {
        if count.state != CountState::Counted {
            return None;
        }
        let number = |number: f64, unit: &str| Metric {
            number: format!("{number:>8.3}"),
            unit: unit.to_owned(),
        };
        if count.unit == "ns" {
            let cpus = count.value / self.elapsed_ns;
            return cpus.is_finite().then(|| number(cpus, "CPUs utilized"));
        }
        let (name, _) = plain(&count.event);
        if let Some(part) = PARTS.iter().find(|(event, _, _)| *event == name)
            && let Some(whole) = self.count_of(count, part.1)
        {
            return Some(Metric {
                number: format!("{:>7.2}%", count.value * 100.0 / whole),
                unit: part.2.to_owned(),
            });
        }
        if name == "instructions"
            && let Some(cycles) = self.count_of(count, "cycles")
        {
            return Some(Metric {
                number: format!("{:>7.2} ", count.value / cycles),
                unit: "insn per cycle".to_owned(),
            });
        }
        let clock_ns = self.clock_ns(count)?;
        if name == "cycles" {
            return Some(number(count.value / clock_ns, "GHz"));
        }
        let per_second = count.value * 1e9 / clock_ns;
        let (scaled, prefix) = match per_second {
            rate if rate >= 1e9 => (rate / 1e9, "G/sec"),
            rate if rate >= 1e6 => (rate / 1e6, "M/sec"),
            rate if rate >= 1e3 => (rate / 1e3, "K/sec"),
            rate => (rate, "/sec"),
        };
        Some(number(scaled, prefix))
    }

    /// Returns the count of event `name` for the same cgroup, CPU and modifiers; `None` if there is none or the count
    /// is 0.
    fn count_of(&self, count: &Count, name: &str) -> Option<f64> {
        let wanted = (name, plain(&count.event).1);
        let is_wanted =
            |other: &&Count| other.state == CountState::Counted && plain(&other.event) == wanted;
        let other = self.same_group(count).find(is_wanted)?;
        (other.value > 0.0).then_some(other.value)
    }

    /// Returns the counted clock, such as `task-clock`, by which a count is divided for its rate.
    fn clock_ns(&self, count: &Count) -> Option<f64> {
        let mut others = self.same_group(count);
        let clock = others.find(|other| other.unit == "ns")?;
        (clock.value > 0.0).then_some(clock.value)
    }
}
