//! Where counts come from.

use tiptoe_kernel::CounterSet;
use tiptoe_kernel::counters::{Support, Whom};
use tiptoe_session::{Session, Stat};

use super::StatRequest;
use super::cgroups::ByCgroup;
use super::cost;
use super::sums::Sums;
use crate::request::Error;

/// Events that count, once they are switched on.
#[derive(Debug)]
pub(super) enum Source {
    /// Of one group of threads or CPUs.
    Set(CounterSet),
    /// Of each cgroup.
    ByCgroup(Box<ByCgroup>),
}

impl Source {
    pub(super) fn open(request: &StatRequest<'_>, whom: &Whom) -> Result<Source, Error> {
        if let Some(names) = &request.cgroups {
            let by_cgroup = ByCgroup::open(&request.groups, names)?;
            return Ok(Source::ByCgroup(Box::new(by_cgroup)));
        }
        let set = CounterSet::open(&request.groups, whom)?;
        refuse_nothing(&set)?;
        Ok(Source::Set(set))
    }

    pub(super) fn enable(&mut self) -> Result<(), Error> {
        match self {
            Source::Set(set) => set.enable()?,
            Source::ByCgroup(cgroups) => cgroups.start()?,
        }
        Ok(())
    }

    pub(super) fn disable(&mut self) -> Result<(), Error> {
        match self {
            Source::Set(set) => set.disable()?,
            Source::ByCgroup(cgroups) => cgroups.stop()?,
        }
        Ok(())
    }

    /// What was counted so far.
    pub(super) fn sums(&mut self, per_cpu: bool) -> Result<Sums, Error> {
        match self {
            Source::Set(set) => Sums::of(set, per_cpu),
            Source::ByCgroup(cgroups) => cgroups.sums(per_cpu),
        }
    }

    /// As [`CounterSet::is_complete`].
    pub(super) fn is_complete(&self) -> bool {
        match self {
            Source::Set(set) => set.is_complete(),
            Source::ByCgroup(_) => true,
        }
    }

    /// Puts what is to be said of a run into the session, and what its switches cost where that was measured.
    pub(super) fn finish(&self, session: &mut Session, stat: &mut Stat) -> Result<(), Error> {
        if let Source::ByCgroup(cgroups) = self {
            let times = cgroups.finish(&mut session.notes)?;
            cost::add_times(stat, times);
        }
        Ok(())
    }
}

/// A set of nothing is an error; of something, what is missing is told in its row.
fn refuse_nothing(set: &CounterSet) -> Result<(), Error> {
    let mut events = set.events();
    if events.any(|(_, support)| support != Support::None) {
        return Ok(());
    }
    let names = set.events().map(|(resolved, _)| resolved.name.as_str());
    Err(nothing_counts(&names.collect::<Vec<_>>()))
}

/// None of these is here.
pub(super) fn nothing_counts(names: &[&str]) -> Error {
    let what = format!("nothing can be counted here: no {}", names.join(", no "));
    Error::new(what)
        .with_hint("a virtual machine often has no counters; task-clock and page-faults need none")
}
