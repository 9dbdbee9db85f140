//! What a count means beside others: a rate, a ratio, a share of the CPUs.

use std::collections::BTreeMap;
use std::fmt;

use tiptoe_session::{Count, CountState};

/// A number, and of what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    pub(super) number: String,
    pub(super) unit: String,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.unit)
    }
}

/// The counts that others are compared with.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    /// Those of one cgroup on one CPU.
    places: BTreeMap<Place, Vec<&'a Count>>,
    /// The columns of the names of cgroups, where there are some.
    cgroup_columns: Option<usize>,
    elapsed_ns: f64,
}

type Place = (Option<String>, bool, Option<u32>);

fn place(count: &Count) -> Place {
    (count.cgroup.clone(), count.is_removed, count.cpu)
}

/// Of an event: the one that it is a part of, and what the share is called.
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

/// Other names of the same events.
const ALIASES: &[(&str, &str)] = &[
    ("cpu-cycles", "cycles"),
    ("branch-instructions", "branches"),
    ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ("idle-cycles-backend", "stalled-cycles-backend"),
];

/// The event's plain name, and its modifiers: only counts of the same ones are compared.
fn plain(event: &str) -> (&str, &str) {
    let (name, modifiers) = event.split_once(':').unwrap_or((event, ""));
    let alias = ALIASES.iter().find(|(other, _)| *other == name);
    (alias.map_or(name, |(_, name)| name), modifiers)
}

/// A cgroup's name, for people.
fn cgroup(count: &Count) -> Option<String> {
    let name = count.cgroup.as_ref()?;
    Some(match count.is_removed {
        true => format!("{name} (removed)"),
        false => name.clone(),
    })
}

impl<'a> Shared<'a> {
    pub(super) fn of(counts: &'a [Count], elapsed_ns: f64) -> Shared<'a> {
        let mut places: BTreeMap<Place, Vec<&'a Count>> = BTreeMap::new();
        for count in counts {
            places.entry(place(count)).or_default().push(count);
        }
        let names = counts.iter().filter_map(cgroup);
        Shared {
            cgroup_columns: names.map(|name| name.chars().count()).max(),
            places,
            elapsed_ns,
        }
    }

    /// The name of a count's cgroup, where there are some; the system's is empty.
    pub(super) fn cgroup(&self, count: &Count) -> Option<String> {
        self.cgroup_columns?;
        Some(cgroup(count).unwrap_or_default())
    }

    /// The columns of the names of cgroups.
    pub(super) fn cgroup_columns(&self) -> usize {
        self.cgroup_columns.unwrap_or(0)
    }

    /// All that was counted in the same place.
    fn same_place(&self, count: &Count) -> impl Iterator<Item = &'a Count> {
        let here = self.places.get(&place(count));
        here.into_iter().flatten().copied()
    }

    /// What a count means.
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
            && let Some(whole) = self.beside(count, part.1)
        {
            return Some(Metric {
                number: format!("{:>7.2}%", count.value * 100.0 / whole),
                unit: part.2.to_owned(),
            });
        }
        if name == "instructions"
            && let Some(cycles) = self.beside(count, "cycles")
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

    /// The count of another event in the same places.
    fn beside(&self, count: &Count, name: &str) -> Option<f64> {
        let wanted = (name, plain(&count.event).1);
        let is_it =
            |other: &&Count| other.state == CountState::Counted && plain(&other.event) == wanted;
        let found = self.same_place(count).find(is_it)?;
        (found.value > 0.0).then_some(found.value)
    }

    /// The time that rates are by: of a clock, where one was counted.
    fn clock_ns(&self, count: &Count) -> Option<f64> {
        let mut others = self.same_place(count);
        let clock = others.find(|other| other.unit == "ns")?;
        (clock.value > 0.0).then_some(clock.value)
    }
}
