//! Counts events in the chosen cgroups, each with its descendants.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use tiptoe_event::{Counter, CounterKind};
use tiptoe_kernel::cgroups::{
    CountFaults, CountOwner, CpuCounts, ExtraCounts, TaskLine, Times, Tree,
};
use tiptoe_kernel::counters::CountTarget;
use tiptoe_kernel::{Cgroups, CounterSet};
use tiptoe_session::{CgroupFault, StatNote};
use tiptoe_sys::host::perf::Counts;

use super::choice::{Choice, name};
use super::count_sums::{CountKey, CountSource, EventSum, Sums};
use crate::error::Error;

/// At most this many removed cgroups are kept, and at most half the number of free slots in the BPF programs' table.
/// Beyond this, all removed cgroups are forgotten, and the nearest existing ancestor of each gets its counts.
const MOST_REMOVED: usize = 512;

pub(super) type Field = fn(&TaskLine) -> u64;

/// The software events that a task's fields count, by the event's number.
const FIELDS: [(u64, Field); 7] = [
    (1, |did| did.runtime_ns),
    (2, |did| did.minor_faults + did.major_faults),
    (3, |did| did.switches),
    (4, |did| did.migrations),
    (5, |did| did.minor_faults),
    (6, |did| did.major_faults),
    (11, |did| did.left),
];
const MIGRATIONS: u64 = 4;
const CGROUP_SWITCHES: u64 = 11;

#[derive(Debug)]
pub(super) struct ByCgroup {
    set: CounterSet,
    cgroups: Cgroups,
    columns: Vec<EventColumn>,
    choice: Choice,
    /// Counts of forgotten cgroups, by the ancestor that got them.
    folded: BTreeMap<u64, Vec<CpuCounts>>,
    forgotten: usize,
    start: Instant,
}

#[derive(Debug)]
struct EventColumn {
    event: String,
    unit: String,
    scale: f64,
    is_tracepoint: bool,
    /// Whether the event may take turns with others, and so count for only part of the time.
    takes_turns: bool,
    source: ColumnSource,
}

#[derive(Clone, Copy, Debug)]
enum ColumnSource {
    Field(Field),
    Event(usize),
    Nothing,
}

/// The counts of a cgroup with its descendants, on each CPU.
type CgroupSum = Vec<CpuCounts>;

impl ByCgroup {
    pub(super) fn open(
        groups: &[Vec<Counter<'_>>],
        choice: &Choice,
        tree: &Tree,
        root: &Path,
        per_cpu: bool,
    ) -> Result<ByCgroup, tiptoe_kernel::Error> {
        let read = without(groups, |counter| field(counter).is_some());
        let set = CounterSet::open(&read, &CountTarget::Cpus(Vec::new()))?;
        let wants = |number: u64| {
            let mut counters = groups.iter().flatten();
            counters.any(|one| plain_number(one) == Some(number))
        };
        let wanted = ExtraCounts {
            has_migrations: wants(MIGRATIONS),
            has_cgroup_switches: wants(CGROUP_SWITCHES),
            per_cpu,
        };
        Ok(ByCgroup {
            columns: columns(groups, &set),
            cgroups: Cgroups::load(&set, wanted, tree, root)?,
            set,
            choice: choice.clone(),
            folded: BTreeMap::new(),
            forgotten: 0,
            start: Instant::now(),
        })
    }

    pub(super) fn counts_nothing(&self) -> Option<Vec<String>> {
        let names = self.columns.iter().map(|one| one.event.clone());
        let mut columns = self.columns.iter();
        let is_nothing = columns.all(|one| matches!(one.source, ColumnSource::Nothing));
        is_nothing.then(|| names.collect())
    }
}

impl CountSource for ByCgroup {
    fn enable(&mut self) -> Result<(), Error> {
        self.set.enable()?;
        self.cgroups.start()?;
        self.start = Instant::now();
        Ok(())
    }

    fn disable(&mut self) -> Result<(), Error> {
        self.cgroups.stop()?;
        self.set.disable()?;
        Ok(())
    }

    /// Returns the system's sums, then each cgroup's.
    fn sums(&mut self, per_cpu: bool) -> Result<Sums, Error> {
        let at = Instant::now();
        let did = self.cgroups.read()?;
        self.choice.choose(self.cgroups.tree());
        let none = || vec![CpuCounts::default(); did.first().map_or(0, |did| did.cpus.len())];
        let mut all = none();
        let mut sums: BTreeMap<u64, CgroupSum> = self.choice.ids().map(|id| (id, none())).collect();
        let tree = self.cgroups.tree();
        let folded = self
            .folded
            .iter()
            .map(|(id, did)| (CountOwner::Cgroup(*id), did));
        let living = did.iter().map(|did| (did.whose, &did.cpus));
        for (whose, cpus) in living.chain(folded) {
            add(&mut all, cpus);
            let own = match whose {
                CountOwner::Cgroup(id) if tree.get(id).is_some() => id,
                _ => tree.root(),
            };
            for id in tree.line(own) {
                if let Some(sum) = sums.get_mut(&id) {
                    add(sum, cpus);
                }
            }
        }
        let elapsed_ns = |since: Instant| {
            let elapsed = at.saturating_duration_since(since.max(self.start));
            // The time is at least 1, because a new cgroup may have counts, and counts without time are reported as not
            // counted.
            elapsed.as_nanos().max(1) as u64
        };
        let mut rows = Vec::new();
        self.rows(&mut rows, None, &all, elapsed_ns(self.start), per_cpu);
        for id in self.choice.ids() {
            if let Some(sum) = sums.get(&id) {
                let since = tree.get(id).map_or(self.start, |node| node.since);
                self.rows(&mut rows, Some(id), sum, elapsed_ns(since), per_cpu);
            }
        }
        self.tidy()?;
        Ok(Sums(rows))
    }

    /// Returns none, because BPF programs read the events, and time themselves.
    fn at_switches<'c>(&self, _groups: &[Vec<Counter<'c>>]) -> Vec<Vec<Counter<'c>>> {
        Vec::new()
    }

    fn finish(&self) -> Result<Option<(Vec<StatNote>, Times)>, Error> {
        let (checks, times) = self.cgroups.checks()?;
        let reads = |one: &EventColumn| matches!(one.source, ColumnSource::Event(_));
        let mut notes = check_notes(&checks, self.columns.iter().any(reads));
        notes.extend(self.choice.unused());
        if self.forgotten > 0 {
            let cgroups = self.forgotten as u64;
            notes.push(StatNote::Forgotten { cgroups });
        }
        Ok(Some((notes, times)))
    }

    fn tidy(&mut self) -> Result<(), Error> {
        self.cgroups.hear();
        let tree = self.cgroups.tree();
        let gone: Vec<u64> = tree
            .iter()
            .filter_map(|(id, node)| node.is_removed.then_some(id))
            .collect();
        if gone.len() <= MOST_REMOVED.min(self.cgroups.spare() / 2) {
            return Ok(());
        }
        let is_there = |id: &u64| tree.get(*id).is_some_and(|node| !node.is_removed);
        let heir = |id: u64| tree.line(id).find(is_there).unwrap_or(tree.root());
        let heirs: BTreeMap<u64, u64> = gone.iter().map(|id| (*id, heir(*id))).collect();
        for (id, cpus) in self.cgroups.forget(&gone)? {
            add(self.folded.entry(heirs[&id]).or_default(), &cpus);
        }
        for (id, heir) in &heirs {
            if let Some(own) = self.folded.remove(id) {
                add(self.folded.entry(*heir).or_default(), &own);
            }
        }
        self.choice.forget(&gone);
        self.forgotten += gone.len();
        Ok(())
    }
}

impl ByCgroup {
    fn rows(
        &self,
        rows: &mut Vec<EventSum>,
        cgroup: Option<u64>,
        sum: &CgroupSum,
        elapsed_ns: u64,
        per_cpu: bool,
    ) {
        let name = cgroup.map(|id| name(self.cgroups.tree(), id));
        let is_removed = cgroup.is_some_and(|id| self.cgroups.tree().is_removed(id));
        for (event, column) in self.columns.iter().enumerate() {
            let counts = sum.iter().map(|did| column.counts(did, elapsed_ns));
            let row = EventSum {
                key: CountKey {
                    cgroup,
                    event,
                    cpu: None,
                },
                event: column.event.clone(),
                cgroup: name.clone(),
                is_removed,
                unit: column.unit.clone(),
                scale: column.scale,
                is_supported: !matches!(column.source, ColumnSource::Nothing),
                is_tracepoint: column.is_tracepoint,
                places: counts.map(Some).enumerate().collect(),
            };
            match per_cpu {
                true => {
                    let cpus = self.set.cpus().unwrap_or_default().iter();
                    rows.extend(cpus.map(|cpu| row.of_cpu(*cpu as usize, *cpu)));
                }
                false => rows.push(row),
            }
        }
    }
}

impl EventColumn {
    fn counts(&self, did: &CpuCounts, elapsed_ns: u64) -> Counts {
        let event = match self.source {
            ColumnSource::Event(number) => did.events.get(number).copied().unwrap_or_default(),
            ColumnSource::Field(field) => Counts {
                count: field(&did.line),
                ..Counts::default()
            },
            ColumnSource::Nothing => Counts::default(),
        };
        match self.takes_turns {
            true => event,
            false => Counts {
                time_enabled_ns: elapsed_ns,
                time_running_ns: elapsed_ns,
                ..event
            },
        }
    }
}

fn columns(groups: &[Vec<Counter<'_>>], set: &CounterSet) -> Vec<EventColumn> {
    let mut read = set.events().zip(set.everywhere());
    let mut column = |counter: &Counter<'_>, takes_turns: bool| match field(counter) {
        Some(field) => Some(EventColumn {
            event: counter.text.to_owned(),
            unit: unit(counter),
            scale: 1.0,
            is_tracepoint: false,
            takes_turns: false,
            source: ColumnSource::Field(field),
        }),
        None => {
            let ((resolved, _), number) = read.next()?;
            Some(EventColumn {
                event: resolved.name.clone(),
                unit: resolved.unit.clone(),
                scale: resolved.scale,
                is_tracepoint: resolved.is_tracepoint(),
                takes_turns,
                source: number.map_or(ColumnSource::Nothing, ColumnSource::Event),
            })
        }
    };
    let mut columns = Vec::new();
    for group in groups {
        // All events of a group take turns if one does, because they are enabled together.
        let takes_turns = group.iter().any(|counter| counter.kind.needs_slot());
        columns.extend(group.iter().filter_map(|one| column(one, takes_turns)));
    }
    columns
}

pub(super) fn plain_number(counter: &Counter<'_>) -> Option<u64> {
    match counter.kind {
        CounterKind::Software(number) if counter.modifiers == Default::default() => Some(number),
        _ => None,
    }
}

pub(super) fn unit(counter: &Counter<'_>) -> String {
    match plain_number(counter) {
        Some(1) => "ns".into(),
        _ => String::new(),
    }
}

pub(super) fn without<'c>(
    groups: &[Vec<Counter<'c>>],
    is_left_out: impl Fn(&Counter<'c>) -> bool,
) -> Vec<Vec<Counter<'c>>> {
    let rest = groups
        .iter()
        .map(|group| group.iter().filter(|one| !is_left_out(one)).copied());
    let rest = rest.map(Iterator::collect);
    rest.filter(|group: &Vec<_>| !group.is_empty()).collect()
}

pub(super) fn field_of_process(counter: &Counter<'_>) -> Option<Field> {
    field(counter).filter(|_| plain_number(counter) != Some(CGROUP_SWITCHES))
}

fn field(counter: &Counter<'_>) -> Option<Field> {
    let number = plain_number(counter)?;
    let found = FIELDS.iter().find(|(event, _)| *event == number)?;
    Some(found.1)
}

/// Returns whether `stat --for-each-cgroup` must read this event when a CPU switches cgroups, because no field of tasks
/// counts it.
pub fn is_read(counter: &Counter<'_>) -> bool {
    field(counter).is_none()
}

/// Returns whether counting this event for cgroups costs time at context switches.
pub fn is_at_switches(counter: &Counter<'_>) -> bool {
    is_read(counter) || plain_number(counter) == Some(CGROUP_SWITCHES)
}

fn add(sum: &mut CgroupSum, cpus: &[CpuCounts]) {
    sum.resize(sum.len().max(cpus.len()), CpuCounts::default());
    for (sum, cpu) in sum.iter_mut().zip(cpus) {
        sum.add(cpu);
    }
}

/// Unreported switches matter only if events are read.
pub(super) fn check_notes(checks: &CountFaults, reads_events: bool) -> Vec<StatNote> {
    let unseen = if reads_events { checks.unseen } else { 0 };
    let faults = [
        (checks.strangers, CgroupFault::UnknownTasks),
        (checks.no_room, CgroupFault::NoRoomForTask),
        (unseen, CgroupFault::UnreportedSwitches),
        (checks.hidden, CgroupFault::UnreportedTasks),
        (checks.surplus, CgroupFault::SurplusSwitches),
        (checks.unended, CgroupFault::UnreportedEnds),
        (checks.missed, CgroupFault::MissedSwitches),
        (checks.moved, CgroupFault::MovedTasks),
        (checks.no_slot, CgroupFault::NoRoomForCgroup),
        (checks.unread, CgroupFault::UnreadEvents),
        (checks.lost_reports, CgroupFault::NoRoomForChange),
    ];
    let found = faults.into_iter().filter(|(count, _)| *count > 0);
    found
        .map(|(count, what)| StatNote::Amiss { what, count })
        .collect()
}
