//! The sources of counts.

use tiptoe_kernel::CounterSet;
use tiptoe_kernel::cgroups::Tree;
use tiptoe_kernel::counters::{CountTarget, Support};
use tiptoe_session::{Session, Stat};
use tiptoe_sys::host::cgroup::Cgroups;

use super::StatRequest;
use super::cgroups::ByCgroup;
use super::choice::Choice;
use super::cost;
use super::count_sums::Sums;
use super::fallback::{ByFiles, BySets};
use crate::request::Error;

/// Events that count, once they are switched on.
#[derive(Debug)]
pub(super) enum Source {
    /// Of threads or CPUs.
    Set(CounterSet),
    /// Of each cgroup, by BPF.
    ByCgroup(Box<ByCgroup>),
    /// Of each cgroup, by the kernel's own cgroup events.
    BySets(BySets),
    /// Of each cgroup, by its files.
    ByFiles(ByFiles),
}

impl Source {
    /// Opens the events; nothing counts yet. Adds notes for the user.
    pub(super) fn open(
        request: &StatRequest<'_>,
        whom: &CountTarget,
        notes: &mut Vec<String>,
    ) -> Result<Source, Error> {
        if let Some(patterns) = &request.cgroups {
            return Source::of_cgroups(request, patterns, notes);
        }
        let set = CounterSet::open(&request.groups, whom)?;
        refuse_nothing(&set)?;
        Ok(Source::Set(set))
    }

    fn of_cgroups(
        request: &StatRequest<'_>,
        patterns: &[String],
        notes: &mut Vec<String>,
    ) -> Result<Source, Error> {
        let found = Cgroups::detect()?;
        let root = found.v2.as_deref().ok_or_else(|| {
            let what = match found.v1.is_empty() {
                true => "no cgroups are mounted here",
                false => "there are only cgroups of version 1 here, and --for-each-cgroup counts those of version 2",
            };
            Error::new(what).with_hint("`mount -t cgroup2 none /mnt`, on a kernel that has them")
        })?;
        let tree = Tree::walk(root);
        let choice = Choice::of(patterns, root, &tree)?;
        let groups = &request.groups;
        let denied = match ByCgroup::open(groups, &choice, &tree, root, request.per_cpu) {
            Ok(by_cgroup) => {
                return match by_cgroup.counts_nothing() {
                    Some(names) => Err(nothing_counts(&names)),
                    None => Ok(Source::ByCgroup(Box::new(by_cgroup))),
                };
            }
            Err(error) if error.is_denied() => error,
            Err(error) => return Err(error.into()),
        };
        let perf = found.for_perf().unwrap_or(root);
        match BySets::open(groups, &choice, &tree, perf) {
            Ok(sets) => {
                refuse_nothing(sets.system())?;
                note(
                    notes,
                    format!(
                        "{denied}: each cgroup has events of its own, and the cost excludes rescheduling \
                         them at switches; cgroups that are created later are not counted"
                    ),
                );
                Ok(Source::BySets(sets))
            }
            Err(error) if error.is_denied() && !request.per_cpu => {
                let files = ByFiles::open(groups, &choice, &tree, root);
                if files.counts_nothing() {
                    return Err(denied.into());
                }
                note(
                    notes,
                    format!(
                        "{denied}: the counts are from the files of cgroups (cpu.stat, memory.stat); cgroups \
                         that are created later are not counted"
                    ),
                );
                Ok(Source::ByFiles(files))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn enable(&mut self) -> Result<(), Error> {
        match self {
            Source::Set(set) => set.enable()?,
            Source::ByCgroup(cgroups) => cgroups.start()?,
            Source::BySets(sets) => sets.each(CounterSet::enable)?,
            Source::ByFiles(files) => files.start(),
        }
        Ok(())
    }

    pub(super) fn disable(&mut self) -> Result<(), Error> {
        match self {
            Source::Set(set) => set.disable()?,
            Source::ByCgroup(cgroups) => cgroups.stop()?,
            Source::BySets(sets) => sets.each(CounterSet::disable)?,
            Source::ByFiles(_) => {}
        }
        Ok(())
    }

    /// Returns what was counted so far.
    pub(super) fn sums(&mut self, per_cpu: bool) -> Result<Sums, Error> {
        match self {
            Source::Set(set) => Sums::of(set, per_cpu),
            Source::ByCgroup(cgroups) => cgroups.sums(per_cpu),
            Source::BySets(sets) => sets.sums(per_cpu),
            Source::ByFiles(files) => Ok(files.sums()),
        }
    }

    /// As [`CounterSet::is_complete`].
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Source::Set(set) => set.is_complete(),
            _ => true,
        }
    }

    /// Frees what is no longer needed; to be called now and then between readings.
    pub(super) fn tidy(&mut self) -> Result<(), Error> {
        match self {
            Source::ByCgroup(cgroups) => cgroups.tidy(),
            _ => Ok(()),
        }
    }

    /// Returns whether nothing runs at context switches.
    pub(super) fn is_free(&self) -> bool {
        matches!(self, Source::ByFiles(_))
    }

    /// Adds the notes of a run to the session, and the measured cost of its switches.
    pub(super) fn finish(&self, session: &mut Session, stat: &mut Stat) -> Result<(), Error> {
        if let Source::ByCgroup(cgroups) = self {
            let mut notes = Vec::new();
            let times = cgroups.finish(&mut notes)?;
            notes
                .into_iter()
                .for_each(|text| note(&mut session.notes, text));
            cost::add_times(stat, times);
        }
        Ok(())
    }
}

/// Adds a note once, because several runs may have the same.
fn note(notes: &mut Vec<String>, text: String) {
    if !notes.contains(&text) {
        notes.push(text);
    }
}

/// Fails if no event is available. If some are, the row of each missing one says so.
fn refuse_nothing(set: &CounterSet) -> Result<(), Error> {
    let mut events = set.events();
    if events.any(|(_, support)| support != Support::None) {
        return Ok(());
    }
    let names = set.events().map(|(resolved, _)| resolved.name.as_str());
    Err(nothing_counts(&names.collect::<Vec<_>>()))
}

/// Makes the error of events that are all unavailable.
fn nothing_counts(names: &[&str]) -> Error {
    let what = format!("nothing can be counted here: no {}", names.join(", no "));
    Error::new(what)
        .with_hint("a virtual machine often has no counters; task-clock and page-faults need none")
}
