//! From what the kernel kept to the rows of a session: merged by what they are told apart by, named,
//! and sorted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tiptoe_event::Histogram as Times;
use tiptoe_kernel::waits::{Callsites, Mode, Outcome, WaitRow};
use tiptoe_session::{Histogram, Wait};
use tiptoe_sys::host::cgroup::{self, Cgroups};

use crate::locks::LockBy;

/// What rows are told apart by: type, mode and outcome, and one thing more.
type Key = (&'static str, Mode, Outcome, u64);

/// One row that is being put together.
#[derive(Default)]
struct Sum {
    count: u64,
    total_ns: u64,
    max_ns: u64,
    times: Box<Times>,
    /// The time at each call site.
    callsites: BTreeMap<u64, u64>,
    /// The stack from a call site on, of the call site with most time.
    stack: Vec<u64>,
    /// Of whom it is: any one of the merged rows, which share what matters.
    whose: String,
}

/// The word for it in a session.
pub(super) fn word(by: Option<LockBy>) -> &'static str {
    match by {
        None | Some(LockBy::Callsite) => "callsite",
        Some(LockBy::Type) => "type",
        Some(LockBy::Lock) => "lock",
        Some(LockBy::Thread) => "thread",
        Some(LockBy::Process) => "process",
        Some(LockBy::Cgroup) => "cgroup",
    }
}

/// The rows, those that took most time first.
pub(super) fn rows(found: &[WaitRow], by: Option<LockBy>, callsites: &Callsites) -> Vec<Wait> {
    let paths = match by {
        Some(LockBy::Cgroup) => cgroup_paths(found),
        _ => BTreeMap::new(),
    };
    let whose = |row: &WaitRow| whose(row, by, callsites, &paths);
    let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
    for row in found {
        let stack = callsites.from_callsite(&row.stack);
        let sum = sums.entry(key(row, by, stack)).or_default();
        if sum.count == 0 {
            sum.whose = whose(row);
        }
        sum.add(row, stack);
    }
    let has_key = !matches!(by, None | Some(LockBy::Callsite | LockBy::Type));
    let wait = |(key, sum): (Key, Sum)| {
        let key_word = has_key.then(|| sum.whose.clone());
        let mut wait = sum.wait(key, callsites);
        wait.key = key_word;
        if by != Some(LockBy::Callsite) {
            wait.callers.clear();
        }
        wait
    };
    let mut rows: Vec<Wait> = sums.into_iter().map(wait).collect();
    rows.sort_by_key(|row| std::cmp::Reverse((row.total_ns, row.count)));
    rows
}

fn key(row: &WaitRow, by: Option<LockBy>, stack: &[u64]) -> Key {
    let apart = match by {
        None | Some(LockBy::Callsite) => stack.first().copied().unwrap_or(0),
        Some(LockBy::Type) => 0,
        Some(LockBy::Lock) => row.key.lock,
        // The idle threads of all CPUs have no id.
        Some(LockBy::Thread) => u64::from(row.key.tid),
        Some(LockBy::Process) => u64::from(row.key.pid),
        Some(LockBy::Cgroup) => row.key.cgroup,
    };
    let traits = row.key.traits;
    (traits.kind(), traits.mode(), traits.outcome(), apart)
}

/// Whose waits, or for which lock.
fn whose(
    row: &WaitRow,
    by: Option<LockBy>,
    callsites: &Callsites,
    paths: &BTreeMap<u64, PathBuf>,
) -> String {
    let comm = &row.waited.comm;
    match by {
        Some(LockBy::Lock) if row.key.traits.is_mmap_lock() => format!("of {} {comm}", row.key.pid),
        Some(LockBy::Lock) => {
            let variable = callsites.variable(row.key.lock);
            variable.unwrap_or_else(|| format!("{:#x}", row.key.lock))
        }
        Some(LockBy::Thread) if row.key.tid == 0 => "0 (idle CPUs)".to_owned(),
        Some(LockBy::Process) if row.key.pid == 0 => "0 (idle CPUs)".to_owned(),
        Some(LockBy::Thread) => format!("{} {comm}", row.key.tid),
        Some(LockBy::Process) => format!("{} {comm}", row.key.pid),
        Some(LockBy::Cgroup) => match paths.get(&row.key.cgroup) {
            Some(path) => path.display().to_string(),
            None => format!("(gone, id {})", row.key.cgroup),
        },
        None | Some(LockBy::Callsite | LockBy::Type) => String::new(),
    }
}

/// The paths of the cgroups that waited, as far as they are still there.
fn cgroup_paths(found: &[WaitRow]) -> BTreeMap<u64, PathBuf> {
    let mut ids: Vec<u64> = found.iter().map(|row| row.key.cgroup).collect();
    ids.sort_unstable();
    ids.dedup();
    let root = Cgroups::detect().ok().and_then(|cgroups| cgroups.v2);
    root.map_or_else(BTreeMap::new, |root| cgroup::paths_of(&root, &ids))
}

impl Sum {
    fn add(&mut self, row: &WaitRow, stack: &[u64]) {
        let waited = &row.waited;
        self.count += waited.count;
        self.total_ns += waited.total_ns;
        self.max_ns = self.max_ns.max(waited.max_ns);
        self.times.merge(&waited.times);
        let Some(callsite) = stack.first() else {
            return;
        };
        let time = self.callsites.entry(*callsite).or_default();
        *time += waited.total_ns;
        let worst = self.callsites.iter().max_by_key(|(_, ns)| **ns);
        if worst.is_some_and(|(worst, _)| worst == callsite) || self.stack.is_empty() {
            self.stack = stack.to_vec();
        }
    }

    fn wait(&self, (kind, mode, outcome, _): Key, callsites: &Callsites) -> Wait {
        let (callsite, callers) = match self.stack.split_first() {
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
            callsites: self.callsites.len() as u64,
            callers: callers.iter().map(|at| callsites.function(*at)).collect(),
            count: self.count,
            total_ns: self.total_ns,
            histogram: Histogram::new(&self.times, self.max_ns),
        }
    }
}
