//! Chooses the source of counts.

use tiptoe_kernel::CounterSet;
use tiptoe_kernel::cgroups::Tree;
use tiptoe_kernel::counters::{CountTarget, Support};
use tiptoe_session::{Note, StatNote};
use tiptoe_sys::host::cgroup::Cgroups;

use super::CounterRequest;
use super::by_process::{ByProcess, KeptTasks};
use super::cgroups::ByCgroup;
use super::choice::Choice;
use super::count_sums::CountSource;
use super::fallback::{ByFiles, BySets};
use crate::error::Error;

pub(super) fn open(
    counters: &CounterRequest<'_>,
    whom: &CountTarget,
    notes: &mut Vec<Note>,
    kept: &mut KeptTasks,
) -> Result<Box<dyn CountSource>, Error> {
    if let Some(patterns) = &counters.request.counters.cgroups {
        return of_cgroups(counters, patterns, notes);
    }
    if !counters.request.counters.per_cpu
        && let Some(by_process) = ByProcess::open(&counters.groups, whom, kept)?
    {
        return Ok(Box::new(by_process));
    }
    let set = CounterSet::open(&counters.groups, whom)?;
    refuse_nothing(&set)?;
    Ok(Box::new(set))
}

fn of_cgroups(
    counters: &CounterRequest<'_>,
    patterns: &[String],
    notes: &mut Vec<Note>,
) -> Result<Box<dyn CountSource>, Error> {
    let found = Cgroups::detect()?;
    let root = found.v2.as_deref().ok_or(Error::NoCgroups {
        has_v1: !found.v1.is_empty(),
    })?;
    let tree = Tree::walk(root);
    let choice = Choice::of(patterns, root, &tree)?;
    let groups = &counters.groups;
    let per_cpu = counters.request.counters.per_cpu;
    let denied = match ByCgroup::open(groups, &choice, &tree, root, per_cpu) {
        Ok(by_cgroup) => {
            return match by_cgroup.counts_nothing() {
                Some(names) => Err(Error::NothingCounts(names)),
                None => Ok(Box::new(by_cgroup)),
            };
        }
        Err(error) if error.is_denied() => error,
        Err(error) => return Err(error.into()),
    };
    let (why, perf) = (denied.to_string(), found.for_perf().unwrap_or(root));
    match BySets::open(groups, &choice, &tree, perf) {
        Ok(sets) => {
            refuse_nothing(&sets.system)?;
            add(notes, StatNote::CgroupsByEvents { why });
            Ok(Box::new(sets))
        }
        Err(error) if error.is_denied() && !per_cpu => {
            let files = ByFiles::open(groups, &choice, &tree, root);
            if files.counts_nothing() {
                return Err(denied.into());
            }
            add(notes, StatNote::CgroupsByFiles { why });
            Ok(Box::new(files))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn add(notes: &mut Vec<Note>, note: StatNote) {
    let note = note.into();
    if !notes.contains(&note) {
        notes.push(note);
    }
}

fn refuse_nothing(set: &CounterSet) -> Result<(), Error> {
    let mut events = set.events();
    if events.any(|(_, support)| support != Support::None) {
        return Ok(());
    }
    let names = set.events().map(|(resolved, _)| resolved.name.clone());
    Err(Error::NothingCounts(names.collect()))
}
