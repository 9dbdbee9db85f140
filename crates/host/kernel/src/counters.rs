//! Sets of perf events on CPUs, cgroups, processes, threads, or a command from its exec on.
//!
//! An event that this machine lacks, or that does not fit into its group, is omitted. Each event has a descriptor per
//! CPU or thread. Later threads inherit events; their counts are added when they exit.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use tiptoe_event::Counter;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::limits::reserve_open_files;
use tiptoe_sys::host::perf::{Attr, CountedOn, Counts, PerfEvent};

use crate::Error;
use crate::cpus::online_cpus;
use crate::kernel_probe::errno::{EINVAL, ENODEV, ENOENT, ENOSYS, ENXIO, EOPNOTSUPP, ESRCH};

mod pmu;
mod resolve;
mod tracepoint;

pub use resolve::KernelEvent;
pub(crate) use resolve::resolve;
pub(crate) use tracepoint::id as tracepoint_id;

/// What to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountTarget {
    /// These CPUs; all online ones if empty.
    Cpus(Vec<u32>),
    /// A cgroup and its descendants, by the cgroup's directory in perf's hierarchy.
    Cgroup(PathBuf),
    /// These processes, with threads and descendants.
    Processes(Vec<u32>),
    /// These threads, with descendants.
    Threads(Vec<u32>),
    /// A process that is about to call exec.
    AtExec(u32),
}

const TRIES: usize = 20;

/// The index in [`CounterSet::cpus`] (meaningless for a thread), and the count; `None` for a pinned event without a
/// counter.
pub type CpuReading = (usize, Option<Counts>);

/// A set of events.
#[derive(Debug)]
pub struct CounterSet {
    events: Vec<Event>,
    cpus: Option<Vec<u32>>,
    is_complete: bool,
}

#[derive(Debug)]
struct Event {
    resolved: KernelEvent,
    is_leader: bool,
    only_user: bool,
    open: Vec<(usize, PerfEvent)>,
}

impl CounterSet {
    /// Opens groups of events, all disabled; for [`CountTarget::AtExec`] the exec enables them.
    pub fn open(groups: &[Vec<Counter<'_>>], whom: &CountTarget) -> Result<CounterSet, Error> {
        let mut resolved = Vec::new();
        for group in groups {
            let events = group.iter().map(resolve);
            resolved.push(events.collect::<Result<Vec<KernelEvent>, Error>>()?);
        }
        let directory = match whom {
            CountTarget::Cgroup(path) => {
                let directory = File::open(path);
                Some(directory.map_err(Error::io(format!("open {}", path.display())))?)
            }
            _ => None,
        };
        let mut tries = TRIES;
        loop {
            let places = places(whom, directory.as_ref())?;
            let opening = CounterOpening {
                whom,
                directory: directory.as_ref(),
                places,
            };
            let set = opening.open(&resolved)?;
            tries -= 1;
            // A new thread may have inherited only some of the events, so they are opened again.
            if set.is_complete || tries == 0 {
                return Ok(set);
            }
        }
    }

    /// Returns `false` if threads started or ended during the opening, so that a new thread may be uncounted.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the counted CPUs; `None` if threads are counted.
    pub fn cpus(&self) -> Option<&[u32]> {
        self.cpus.as_deref()
    }

    /// Returns each event, and the kernel's support of it.
    pub fn events(&self) -> impl Iterator<Item = (&KernelEvent, Support)> {
        self.events.iter().map(|event| {
            let support = match (event.open.is_empty(), event.only_user) {
                (true, _) => Support::None,
                (false, true) => Support::OnlyUser,
                (false, false) => Support::Full,
            };
            (&event.resolved, support)
        })
    }

    /// Enables all events.
    pub fn enable(&self) -> Result<(), Error> {
        self.each_leader(PerfEvent::enable, "enable an event")
    }

    /// Disables all events; counts stay.
    pub fn disable(&self) -> Result<(), Error> {
        self.each_leader(PerfEvent::disable, "disable an event")
    }

    /// Numbers the events that are open on every CPU, from 0; `None` for other events.
    pub fn everywhere(&self) -> Vec<Option<usize>> {
        let cpus = self.cpus.as_deref().unwrap_or_default().len();
        let mut numbers = 0..;
        let events = self.events.iter();
        events
            .map(|event| match event.open.len() == cpus {
                true => numbers.next(),
                false => None,
            })
            .collect()
    }

    /// Returns each CPU's events, numbered as in [`CounterSet::everywhere`].
    pub(crate) fn on_cpus(&self) -> impl Iterator<Item = (usize, u32, &PerfEvent)> {
        let cpus = self.cpus.as_deref().unwrap_or_default();
        let numbered = self.everywhere().into_iter().zip(&self.events);
        let numbered = numbered.filter_map(|(number, event)| Some((number?, event)));
        numbered.flat_map(move |(number, event)| {
            let open = event.open.iter();
            open.filter_map(move |(place, opened)| Some((number, *cpus.get(*place)?, opened)))
        })
    }

    fn each_leader(
        &self,
        what: impl Fn(&PerfEvent) -> io::Result<()>,
        word: &str,
    ) -> Result<(), Error> {
        let leaders = self.events.iter().filter(|event| event.is_leader);
        for (_, event) in leaders.flat_map(|event| &event.open) {
            what(event).map_err(Error::io(word))?;
        }
        Ok(())
    }

    /// Returns each event's counts by CPU or thread.
    pub fn read(&self) -> Result<Vec<Vec<CpuReading>>, Error> {
        let read = |(place, event): &(usize, PerfEvent)| match event.read() {
            Ok(counts) => Ok((*place, Some(counts))),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok((*place, None)),
            Err(error) => Err(Error::io("read an event")(error)),
        };
        self.events
            .iter()
            .map(|event| event.open.iter().map(read).collect())
            .collect()
    }
}

/// The kernel's support of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// The event is not counted.
    None,
    /// Only user space is counted, for lack of a right.
    OnlyUser,
    /// Everything is counted.
    Full,
}

struct CounterOpening<'a> {
    whom: &'a CountTarget,
    directory: Option<&'a File>,
    places: Vec<CountedOn>,
}

impl CounterOpening<'_> {
    fn open(self, groups: &[Vec<KernelEvent>]) -> Result<CounterSet, Error> {
        let count = groups.iter().map(Vec::len).sum::<usize>() * self.places.len();
        reserve_open_files(count as u64)?;
        let mut events = Vec::new();
        for group in groups {
            events.extend(self.group(group)?);
        }
        let is_some = events.iter().any(|event| !event.open.is_empty());
        let now = || places(self.whom, self.directory);
        let is_alive = is_some || now().is_ok_and(|places| !places.is_empty());
        if !is_alive {
            return Err(Error::NoSuchThread);
        }
        let cpus = || self.places.iter().filter_map(cpu_of).collect();
        let cpus = self.is_of_cpus().then(cpus);
        let is_complete = match self.whom {
            CountTarget::Processes(_) => now().is_ok_and(|places| places == self.places),
            _ => true,
        };
        Ok(CounterSet {
            events,
            cpus,
            is_complete,
        })
    }

    fn group(&self, group: &[KernelEvent]) -> Result<Vec<Event>, Error> {
        let mut events: Vec<Event> = (0..)
            .zip(group)
            .map(|(at, resolved)| Event {
                resolved: resolved.clone(),
                is_leader: at == 0,
                only_user: false,
                open: Vec::new(),
            })
            .collect();
        for (place, on) in self.places.iter().enumerate() {
            let (leader, members) = events.split_at_mut(1);
            let Some(leader) = leader.first_mut() else {
                continue;
            };
            self.one(leader, place, *on, None)?;
            // Members are skipped with their leader, because they must count together.
            let Some((_, opened)) = leader.open.last().filter(|(at, _)| *at == place) else {
                continue;
            };
            for member in members {
                self.one(member, place, *on, Some(opened))?;
            }
        }
        Ok(events)
    }

    fn one(
        &self,
        event: &mut Event,
        place: usize,
        on: CountedOn,
        leader: Option<&PerfEvent>,
    ) -> Result<(), Error> {
        if !event.resolved.is_counted_on(on) {
            return Ok(());
        }
        let mut attr = self.attr(event);
        let mut opened = PerfEvent::open_in(attr, on, leader);
        // Some PMUs cannot exclude guests, and refuse the bit.
        if opened.as_ref().is_err_and(is_missing) && event.resolved.is_of_own_pmu {
            attr.set_exclude_guest(0);
            opened = PerfEvent::open_in(attr, on, leader);
        }
        let may_narrow = attr.exclude_kernel() == 0 && !event.resolved.is_tracepoint();
        if opened.as_ref().is_err_and(is_denied) && may_narrow {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
            opened = PerfEvent::open_in(attr, on, leader);
            event.only_user = opened.is_ok();
        }
        if !opened.as_ref().is_err_and(is_missing)
            && let Some(opened) = self::opened(opened, &event.resolved.name, on)?
        {
            event.open.push((place, opened));
        }
        Ok(())
    }

    fn is_of_cpus(&self) -> bool {
        matches!(self.whom, CountTarget::Cpus(_) | CountTarget::Cgroup(_))
    }

    fn attr(&self, event: &Event) -> Attr {
        let mut attr = event.resolved.attr;
        attr.set_inherit(u64::from(!self.is_of_cpus()));
        if event.is_leader {
            attr.set_disabled(1);
            attr.set_pinned(u64::from(event.resolved.is_pinned));
            // Only a leader may be exclusive.
            attr.set_exclusive(u64::from(event.resolved.is_exclusive));
            attr.set_enable_on_exec(u64::from(matches!(self.whom, CountTarget::AtExec(_))));
        }
        if event.only_user {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
        }
        attr
    }
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn is_missing(error: &io::Error) -> bool {
    let missing = [ENOENT, ENXIO, ENODEV, EINVAL, ENOSYS, EOPNOTSUPP];
    error.raw_os_error().is_some_and(|e| missing.contains(&e))
}

pub(crate) fn opened(
    event: io::Result<PerfEvent>,
    name: &str,
    on: CountedOn,
) -> Result<Option<PerfEvent>, Error> {
    match event {
        Ok(event) => Ok(Some(event)),
        Err(e) if e.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(e) if is_denied(&e) => Err(Error::CounterDenied {
            name: name.to_owned(),
            whose: match on {
                CountedOn::Cpu(_) | CountedOn::Cgroup { .. } => "of the whole system".to_owned(),
                CountedOn::Thread(tid) => format!("of thread {tid}"),
            },
        }),
        Err(e) => Err(Error::io(format!("count {name}"))(e)),
    }
}

fn cpu_of(on: &CountedOn) -> Option<u32> {
    match on {
        CountedOn::Cpu(cpu) | CountedOn::Cgroup { cpu, .. } => Some(*cpu),
        CountedOn::Thread(_) => None,
    }
}

fn places(whom: &CountTarget, directory: Option<&File>) -> Result<Vec<CountedOn>, Error> {
    let all = || online_cpus().map(Vec::into_iter);
    Ok(match whom {
        CountTarget::Cgroup(_) => match directory {
            Some(directory) => all()?
                .map(|cpu| CountedOn::Cgroup {
                    directory: directory.as_raw_fd(),
                    cpu,
                })
                .collect(),
            None => Vec::new(),
        },
        CountTarget::Cpus(cpus) if cpus.is_empty() => all()?.map(CountedOn::Cpu).collect(),
        CountTarget::Cpus(cpus) => cpus.iter().copied().map(CountedOn::Cpu).collect(),
        CountTarget::Threads(tids) => tids.iter().copied().map(CountedOn::Thread).collect(),
        CountTarget::AtExec(pid) => vec![CountedOn::Thread(*pid)],
        CountTarget::Processes(pids) => {
            let mut places = Vec::new();
            for pid in pids {
                let threads = Process::new(*pid)?.threads()?;
                places.extend(threads.into_iter().map(CountedOn::Thread));
            }
            places
        }
    })
}

#[cfg(test)]
mod tests;
