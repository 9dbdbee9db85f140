//! Counts each cgroup if this user may not use BPF: by perf's cgroup events, or by the cgroups' files.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tiptoe_event::Counter;
use tiptoe_kernel::CounterSet;
use tiptoe_kernel::cgroups::Tree;
use tiptoe_kernel::counters::CountTarget;
use tiptoe_sys::host::cgroup::used;
use tiptoe_sys::host::perf::Counts;

use super::cgroups::plain_number;
use super::choice::{Choice, name};
use super::count_sums::{CountKey, CountSource, EventSum, Sums};
use crate::error::Error;

/// Sets of perf events, which the kernel enables and disables at each switch between cgroups.
#[derive(Debug)]
pub(super) struct BySets {
    pub(super) system: CounterSet,
    cgroups: Vec<(String, CounterSet)>,
}

impl BySets {
    /// Cgroups created later are not counted.
    pub(super) fn open(
        groups: &[Vec<Counter<'_>>],
        choice: &Choice,
        tree: &Tree,
        root: &Path,
    ) -> Result<BySets, tiptoe_kernel::Error> {
        let system = CounterSet::open(groups, &CountTarget::Cpus(Vec::new()))?;
        let open = |id: u64| {
            let set = CounterSet::open(groups, &CountTarget::Cgroup(directory(root, tree, id)))?;
            Ok::<_, tiptoe_kernel::Error>((name(tree, id), set))
        };
        Ok(BySets {
            system,
            cgroups: choice.ids().map(open).collect::<Result<_, _>>()?,
        })
    }

    fn each(
        &self,
        what: impl Fn(&CounterSet) -> Result<(), tiptoe_kernel::Error>,
    ) -> Result<(), Error> {
        what(&self.system)?;
        for (_, set) in &self.cgroups {
            what(set)?;
        }
        Ok(())
    }
}

impl CountSource for BySets {
    fn enable(&mut self) -> Result<(), Error> {
        self.each(CounterSet::enable)
    }

    fn disable(&mut self) -> Result<(), Error> {
        self.each(CounterSet::disable)
    }

    fn sums(&mut self, per_cpu: bool) -> Result<Sums, Error> {
        let mut all = Sums::of(&self.system, per_cpu)?;
        for ((name, set), number) in self.cgroups.iter().zip(0..) {
            all.add(Sums::of(set, per_cpu)?, number, name);
        }
        Ok(all)
    }
}

/// Reads CPU time, and page faults if the cgroup accounts for memory.
#[derive(Debug)]
pub(super) struct ByFiles {
    events: Vec<(String, Option<u64>)>,
    /// The first entry is the whole system.
    cgroups: Vec<(Option<String>, PathBuf)>,
    start: Instant,
    before: Vec<Vec<Option<u64>>>,
}

impl ByFiles {
    pub(super) fn open(
        groups: &[Vec<Counter<'_>>],
        choice: &Choice,
        tree: &Tree,
        root: &Path,
    ) -> ByFiles {
        let events = groups.iter().flatten();
        let cgroups = choice
            .ids()
            .map(|id| (Some(name(tree, id)), directory(root, tree, id)));
        ByFiles {
            events: events
                .map(|one| (one.text.to_owned(), plain_number(one)))
                .collect(),
            cgroups: [(None, root.to_path_buf())]
                .into_iter()
                .chain(cgroups)
                .collect(),
            start: Instant::now(),
            before: Vec::new(),
        }
    }

    pub(super) fn counts_nothing(&self) -> bool {
        !self.read().iter().flatten().any(Option::is_some)
    }

    /// The counts are by cgroup and event; `None` if the cgroup's files lack a count.
    fn read(&self) -> Vec<Vec<Option<u64>>> {
        let read = |(_, path): &(Option<String>, PathBuf)| {
            let used = used(path);
            let events = self.events.iter();
            events
                .map(|(_, number)| match number {
                    Some(0 | 1) => used.cpu_ns,
                    Some(2) => used.faults,
                    Some(5) => Some(used.faults?.saturating_sub(used.major_faults?)),
                    Some(6) => used.major_faults,
                    _ => None,
                })
                .collect()
        };
        self.cgroups.iter().map(read).collect()
    }
}

impl CountSource for ByFiles {
    fn enable(&mut self) -> Result<(), Error> {
        self.start = Instant::now();
        self.before = self.read();
        Ok(())
    }

    fn disable(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns none, because the kernel counts for its own files anyway.
    fn at_switches<'c>(&self, _groups: &[Vec<Counter<'c>>]) -> Vec<Vec<Counter<'c>>> {
        Vec::new()
    }

    fn sums(&mut self, _per_cpu: bool) -> Result<Sums, Error> {
        let at = Instant::now();
        let elapsed_ns = at.saturating_duration_since(self.start).as_nanos() as u64;
        let mut rows = Vec::new();
        for (cgroup, now) in self.read().iter().enumerate() {
            for (event, now) in now.iter().enumerate() {
                let before = self
                    .before
                    .get(cgroup)
                    .and_then(|all| all.get(event).copied()?);
                let counts = now.map(|now| Counts {
                    count: now.saturating_sub(before.unwrap_or(0)),
                    time_enabled_ns: elapsed_ns,
                    time_running_ns: elapsed_ns,
                });
                let (text, number) = &self.events[event];
                rows.push(EventSum {
                    key: CountKey {
                        cgroup: (cgroup > 0).then_some(cgroup as u64),
                        event,
                        cpu: None,
                    },
                    event: text.clone(),
                    cgroup: self.cgroups[cgroup].0.clone(),
                    is_removed: false,
                    unit: match number {
                        Some(0 | 1) => "ns".into(),
                        _ => String::new(),
                    },
                    scale: 1.0,
                    is_supported: now.is_some(),
                    is_tracepoint: false,
                    places: vec![(0, counts)],
                });
            }
        }
        Ok(Sums(rows))
    }
}

fn directory(root: &Path, tree: &Tree, id: u64) -> PathBuf {
    let path = tree.get(id).map_or("", |node| node.path.as_str());
    root.join(path.trim_start_matches('/'))
}
