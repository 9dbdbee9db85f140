//! Turns recorded waits into the rows of a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tiptoe_event::Histogram as Times;
use tiptoe_kernel::waits::{Callsites, Mode, Outcome, WaitSums};
use tiptoe_session::{Histogram, Wait};
use tiptoe_sys::host::cgroup::{self, Cgroups};

use crate::request::Split;

/// The lock's type, the mode, the outcome, and the value that rows are grouped by.
type GroupKey = (&'static str, Mode, Outcome, u64);

#[derive(Default)]
struct RowSum {
    count: u64,
    total_ns: u64,
    max_ns: u64,
    times: Box<Times>,
    /// Nanoseconds by stack, whose first address is the call site.
    stacks: BTreeMap<Vec<u64>, u64>,
    whose: String,
}

/// Returns the rows, longest time first. `processes` has the current names of processes; `found` has the names at the
/// first waits.
pub(super) fn rows(
    found: &[WaitSums],
    by: Option<Split>,
    callsites: &Callsites,
    processes: &BTreeMap<u32, String>,
) -> Vec<Wait> {
    let names = RowNames {
        callsites,
        processes,
        cgroups: match by {
            Some(Split::Cgroup) => cgroup_paths(found),
            _ => BTreeMap::new(),
        },
    };
    let mut sums: BTreeMap<GroupKey, RowSum> = BTreeMap::new();
    for row in found {
        let stack = callsites.from_callsite(&row.stack);
        let sum = sums.entry(key(row, by, stack)).or_default();
        if sum.count == 0 {
            sum.whose = names.whose(row, by);
        }
        sum.add(row, stack);
    }
    let has_key = !matches!(by, None | Some(Split::Callsite | Split::Type));
    let wait = |(key, sum): (GroupKey, RowSum)| {
        let key_word = has_key.then(|| sum.whose.clone());
        let mut wait = sum.wait(key, callsites);
        wait.key = key_word;
        if by != Some(Split::Callsite) {
            wait.callers.clear();
        }
        wait
    };
    let mut rows: Vec<Wait> = sums.into_iter().map(wait).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.total_ns, row.count)));
    rows
}

fn key(row: &WaitSums, by: Option<Split>, stack: &[u64]) -> GroupKey {
    let grouping = match by {
        Some(Split::Type) => 0,
        Some(Split::Lock) => row.key.lock,
        // The idle threads of all CPUs share the id 0.
        Some(Split::Thread) => u64::from(row.key.tid),
        Some(Split::Process) => u64::from(row.key.tgid),
        Some(Split::Cgroup) => row.key.cgroup,
        _ => stack.first().copied().unwrap_or(0),
    };
    let traits = row.key.traits;
    (traits.kind(), traits.mode(), traits.outcome(), grouping)
}

struct RowNames<'a> {
    callsites: &'a Callsites,
    processes: &'a BTreeMap<u32, String>,
    cgroups: BTreeMap<u64, PathBuf>,
}

impl RowNames<'_> {
    fn whose(&self, row: &WaitSums, by: Option<Split>) -> String {
        let key = &row.key;
        match by {
            Some(Split::Lock) if key.traits.is_mmap_lock() => format!("of {}", self.process(row)),
            Some(Split::Lock) => {
                let variable = self.callsites.variable(key.lock);
                variable.unwrap_or_else(|| format!("{:#x}", key.lock))
            }
            Some(Split::Thread) if key.tid == 0 => "0 (idle CPUs)".to_owned(),
            Some(Split::Thread) => format!("{} {}", key.tid, row.waited.name()),
            Some(Split::Process) => self.process(row),
            Some(Split::Cgroup) => match self.cgroups.get(&key.cgroup) {
                Some(path) => path.display().to_string(),
                None => format!("(removed, id {})", key.cgroup),
            },
            _ => String::new(),
        }
    }

    fn process(&self, row: &WaitSums) -> String {
        let pid = row.key.tgid;
        match self.processes.get(&pid) {
            _ if pid == 0 => "0 (idle CPUs)".to_owned(),
            Some(name) => format!("{pid} {name}"),
            None => format!("{pid} {}", row.waited.name()),
        }
    }
}

fn cgroup_paths(found: &[WaitSums]) -> BTreeMap<u64, PathBuf> {
    let mut ids: Vec<u64> = found.iter().map(|row| row.key.cgroup).collect();
    ids.sort_unstable();
    ids.dedup();
    let root = Cgroups::detect().ok().and_then(|cgroups| cgroups.v2);
    root.map_or_else(BTreeMap::new, |root| cgroup::paths_of(&root, &ids))
}

impl RowSum {
    fn add(&mut self, row: &WaitSums, stack: &[u64]) {
        let waited = &row.waited;
        self.count += waited.count;
        self.total_ns += waited.total_ns;
        self.max_ns = self.max_ns.max(waited.max_ns);
        self.times.merge(&waited.times());
        if !stack.is_empty() {
            let time = self.stacks.entry(stack.to_vec()).or_default();
            *time += waited.total_ns;
        }
    }

    /// Returns the longest-waiting stack of the longest-waiting call site, and the number of call sites.
    fn callsite(&self) -> (&[u64], usize) {
        let mut times: BTreeMap<u64, u64> = BTreeMap::new();
        for (stack, ns) in &self.stacks {
            *times.entry(stack[0]).or_default() += ns;
        }
        let Some((worst, _)) = times.iter().max_by_key(|(_, ns)| **ns) else {
            return (&[], 0);
        };
        let of_worst = self.stacks.iter().filter(|(stack, _)| stack[0] == *worst);
        let stack = of_worst.max_by_key(|(_, ns)| **ns);
        (stack.map_or(&[], |(stack, _)| stack), times.len())
    }

    fn wait(&self, (kind, mode, outcome, _): GroupKey, callsites: &Callsites) -> Wait {
        let (stack, places) = self.callsite();
        let (callsite, callers) = match stack.split_first() {
            Some((callsite, callers)) => (Some(callsites.name(*callsite)), callers),
            None => (None, &[][..]),
        };
        Wait {
            kind: kind.to_owned(),
            mode: match mode {
                Mode::Read => tiptoe_session::Mode::Read,
                Mode::Write => tiptoe_session::Mode::Write,
                Mode::Exclusive => tiptoe_session::Mode::Exclusive,
            },
            outcome: match outcome {
                Outcome::Acquired => tiptoe_session::Outcome::Acquired,
                Outcome::Failed => tiptoe_session::Outcome::Failed,
                Outcome::Downgraded => tiptoe_session::Outcome::Downgraded,
            },
            key: None,
            callsite,
            callsites: places as u64,
            callers: callers.iter().map(|at| callsites.function(*at)).collect(),
            count: self.count,
            total_ns: self.total_ns,
            histogram: Histogram::new(&self.times, self.max_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_kernel::waits::{RowKey, Traits, WaitCounts};
    use tiptoe_sys::host::kallsyms::KernelSymbols;

    const WRITE: u32 = 4;
    const MMAP: u32 = 1 << 8;
    const FAILED: u32 = 1 << 9;

    fn row(flags: u32, pid: u32, stack: &[u64], ns: u64) -> WaitSums {
        let mut times = Times::default();
        times.record(ns);
        WaitSums {
            key: RowKey {
                lock: 0xffff_0000 + u64::from(flags),
                cgroup: u64::MAX,
                tgid: pid,
                tid: pid + 1,
                stack: -1,
                traits: Traits::new(flags),
            },
            stack: stack.to_vec(),
            waited: WaitCounts {
                count: 1,
                total_ns: ns,
                max_ns: ns,
                zero_count: times.zero_count,
                comm: *b"early\0\0\0\0\0\0\0\0\0\0\0",
                buckets: times.counts().map(|count| count as u32),
            },
        }
    }

    fn kernel_rows() -> Vec<WaitSums> {
        vec![
            row(WRITE | MMAP, 7, &[0x1004, 0x2004], 100),
            row(WRITE | MMAP, 7, &[0x1008, 0x2008], 300),
            row(WRITE | MMAP, 8, &[0x1004, 0x3004], 50),
            row(WRITE | FAILED, 0, &[], 1),
        ]
    }

    /// Checks the rows, each written as `type key callsite(places) callers total`.
    fn check(by: Option<Split>, expected: &[&str]) {
        let symbols = KernelSymbols::parse("1000 T vm_mmap\n2000 T one\n3000 T other\n");
        let symbols = Callsites::new(symbols);
        let names = BTreeMap::from([(7, "late".to_owned())]);
        let line = |wait: &Wait| {
            let callsite = wait.callsite.as_deref().unwrap_or("?");
            let (key, places) = (wait.key.as_deref().unwrap_or("-"), wait.callsites);
            let (callers, total) = (wait.callers.join(","), wait.total_ns);
            format!("{} {key} {callsite}({places}) {callers} {total}", wait.kind)
        };
        let rows = rows(&kernel_rows(), by, &symbols, &names);
        let lines: Vec<String> = rows.iter().map(line).collect();
        assert_eq!(lines, expected, "{by:?}");
        let max = rows[0].histogram.max_ns;
        assert!(max <= rows[0].total_ns && rows[0].histogram.total() == rows[0].count);
    }

    #[test]
    fn rows_are_merged_by_the_requested_grouping() {
        let failed = "rwsem - ?(0)  1";
        check(
            None,
            &[
                "mmap_lock - vm_mmap+0x8(1)  300",
                "mmap_lock - vm_mmap+0x4(1)  150",
                failed,
            ],
        );
        check(
            Some(Split::Callsite),
            &[
                "mmap_lock - vm_mmap+0x8(1) one 300",
                "mmap_lock - vm_mmap+0x4(1) one 150",
                failed,
            ],
        );
        check(
            Some(Split::Type),
            &["mmap_lock - vm_mmap+0x8(2)  450", failed],
        );
    }

    #[test]
    fn rows_are_named_after_the_requested_grouping() {
        check(
            Some(Split::Process),
            &[
                "mmap_lock 7 late vm_mmap+0x8(2)  400",
                "mmap_lock 8 early vm_mmap+0x4(1)  50",
                "rwsem 0 (idle CPUs) ?(0)  1",
            ],
        );
        check(
            Some(Split::Thread),
            &[
                "mmap_lock 8 early vm_mmap+0x8(2)  400",
                "mmap_lock 9 early vm_mmap+0x4(1)  50",
                "rwsem 1 early ?(0)  1",
            ],
        );
        check(
            Some(Split::Lock),
            &[
                "mmap_lock of 7 late vm_mmap+0x8(2)  450",
                "rwsem 0xffff0204 ?(0)  1",
            ],
        );
        let gone = format!("(removed, id {})", u64::MAX);
        check(
            Some(Split::Cgroup),
            &[
                &format!("mmap_lock {gone} vm_mmap+0x8(2)  450"),
                &format!("rwsem {gone} ?(0)  1"),
            ],
        );
    }
}
