//! Sets of perf events that count: of CPUs, of processes with all of their threads, of a command from its exec on.
//!
//! An event that this machine does not have, or that its group has no room for, is left out, and the others count.
//! Each event has a descriptor for each CPU or thread; threads and processes that begin later inherit it, and what
//! they counted is in it when they have ended. Nothing stays when the set is dropped.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use tiptoe_event::Counter;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::limits::reserve_open_files;
use tiptoe_sys::host::perf::{Attr, Counts, On, PerfEvent, abi};

use crate::Error;
use crate::cpus::online_cpus;

mod pmu;
mod resolve;
mod tracepoint;

pub use resolve::Resolved;
pub(crate) use resolve::resolve;

/// Who is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Whatever runs on these CPUs; none are all that are online.
    Cpus(Vec<u32>),
    /// Whatever runs of a cgroup and those within it, given by its directory in the hierarchy that perf events know.
    /// The kernel takes such events out and puts them in at each switch to another cgroup.
    Cgroup(PathBuf),
    /// These processes: their threads, and all that come of them.
    Processes(Vec<u32>),
    /// These threads, and all that come of them.
    Threads(Vec<u32>),
    /// A process that is about to call exec, from there on.
    AtExec(u32),
}

/// How often the threads are listed again where some begin meanwhile.
const TRIES: usize = 20;

/// A place, and what an event counted there; nothing of one that is in error.
pub type Placed = (usize, Option<Counts>);

/// A set of events.
#[derive(Debug)]
pub struct CounterSet {
    events: Vec<Event>,
    cpus: Option<Vec<u32>>,
    is_complete: bool,
}

/// One event of a set, in its places.
#[derive(Debug)]
struct Event {
    resolved: Resolved,
    is_leader: bool,
    only_user: bool,
    /// The place, and what counts there.
    open: Vec<(usize, PerfEvent)>,
}

impl CounterSet {
    /// Opens groups of events, all switched off. Of [`Whom::AtExec`] the exec switches them on.
    pub fn open(groups: &[Vec<Counter<'_>>], whom: &Whom) -> Result<CounterSet, Error> {
        let mut resolved = Vec::new();
        for group in groups {
            let events = group.iter().map(resolve);
            resolved.push(events.collect::<Result<Vec<Resolved>, Error>>()?);
        }
        let directory = match whom {
            Whom::Cgroup(path) => Some(File::open(path).map_err(|source| Error::Io {
                what: format!("open {}", path.display()),
                source,
            })?),
            _ => None,
        };
        let mut tries = TRIES;
        loop {
            let places = places(whom, directory.as_ref())?;
            let opening = Opening {
                whom,
                directory: directory.as_ref(),
                places,
            };
            let set = opening.open(&resolved)?;
            tries -= 1;
            // What began meanwhile has inherited the events of its parent, or not.
            if set.is_complete || tries == 0 {
                return Ok(set);
            }
        }
    }

    /// Whether threads began while it was opened, until the end: some may not be counted.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The CPUs, where it is those that are counted.
    pub fn cpus(&self) -> Option<&[u32]> {
        self.cpus.as_deref()
    }

    /// What the events are, and whether the kernel has them at all.
    pub fn events(&self) -> impl Iterator<Item = (&Resolved, Support)> {
        self.events.iter().map(|event| {
            let support = match (event.open.is_empty(), event.only_user) {
                (true, _) => Support::None,
                (false, true) => Support::OnlyUser,
                (false, false) => Support::Full,
            };
            (&event.resolved, support)
        })
    }

    /// Switches all of it on.
    pub fn enable(&self) -> Result<(), Error> {
        self.each_leader(PerfEvent::enable, "switch an event on")
    }

    /// Switches all of it off; what was counted stays.
    pub fn disable(&self) -> Result<(), Error> {
        self.each_leader(PerfEvent::disable, "switch an event off")
    }

    /// Of each event its number among those that every CPU counts for itself; of the others none.
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

    /// Those events, by that number, with each CPU that they count on.
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
            what(event).map_err(|source| Error::Io {
                what: word.into(),
                source,
            })?;
        }
        Ok(())
    }

    /// For each event what it counted so far in each of its places: a CPU by its place in [`CounterSet::cpus`],
    /// a thread by nothing that lasts. A pinned event that found no counter is in error: `None`.
    pub fn read(&self) -> Result<Vec<Vec<Placed>>, Error> {
        let read = |(place, event): &(usize, PerfEvent)| match event.read() {
            Ok(counts) => Ok((*place, Some(counts))),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok((*place, None)),
            Err(source) => Err(Error::Io {
                what: "read an event".into(),
                source,
            }),
        };
        self.events
            .iter()
            .map(|event| event.open.iter().map(read).collect())
            .collect()
    }
}

/// Whether an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Not here.
    None,
    /// Only in user space: more is not allowed to this user.
    OnlyUser,
    /// As it was asked for.
    Full,
}

/// A set that is being opened.
struct Opening<'a> {
    whom: &'a Whom,
    directory: Option<&'a File>,
    places: Vec<On>,
}

impl Opening<'_> {
    fn open(self, groups: &[Vec<Resolved>]) -> Result<CounterSet, Error> {
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
        let cpus = match self.whom {
            Whom::Cpus(_) | Whom::Cgroup(_) => {
                Some(self.places.iter().filter_map(cpu_of).collect())
            }
            _ => None,
        };
        let is_complete = match self.whom {
            Whom::Processes(_) => now().is_ok_and(|places| places == self.places),
            _ => true,
        };
        Ok(CounterSet {
            events,
            cpus,
            is_complete,
        })
    }

    fn group(&self, group: &[Resolved]) -> Result<Vec<Event>, Error> {
        let mut events: Vec<Event> = (0..)
            .zip(group)
            .map(|(at, resolved)| Event {
                resolved: resolved.clone(),
                is_leader: at == 0,
                only_user: false,
                open: Vec::new(),
            })
            .collect();
        let is_pinned = group.first().is_some_and(|leader| leader.is_pinned);
        for (place, on) in self.places.iter().enumerate() {
            let (leader, members) = events.split_at_mut(1);
            let Some(leader) = leader.first_mut() else {
                continue;
            };
            self.one(leader, place, *on, None, is_pinned)?;
            // As one they would count without the first: not what was asked for.
            let Some((_, opened)) = leader.open.last().filter(|(at, _)| *at == place) else {
                continue;
            };
            for member in members {
                self.one(member, place, *on, Some(opened), false)?;
            }
        }
        Ok(events)
    }

    /// Opens an event in a place, where the kernel has it.
    fn one(
        &self,
        event: &mut Event,
        place: usize,
        on: On,
        leader: Option<&PerfEvent>,
        is_pinned: bool,
    ) -> Result<(), Error> {
        if !event.resolved.is_counted_on(on) {
            return Ok(());
        }
        let mut attr = self.attr(event, leader.is_none(), is_pinned);
        let mut opened = PerfEvent::open_in(attr, on, leader);
        // Some PMUs cannot tell guests apart, and refuse the bit that is set for those that can.
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
        match opened {
            Ok(opened) => event.open.push((place, opened)),
            Err(e) if is_missing(&e) => {}
            // It ended since it was listed.
            Err(e) if e.raw_os_error() == Some(ESRCH) => {}
            Err(e) if is_denied(&e) => return Err(denied(&event.resolved.name, on)),
            Err(source) => {
                return Err(Error::Io {
                    what: format!("count {}", event.resolved.name),
                    source,
                });
            }
        }
        Ok(())
    }

    fn attr(&self, event: &Event, is_leader: bool, is_pinned: bool) -> Attr {
        let mut attr = event.resolved.attr;
        let is_of_cpus = matches!(self.whom, Whom::Cpus(_) | Whom::Cgroup(_));
        attr.set_inherit(u64::from(!is_of_cpus));
        if is_leader {
            attr.set_disabled(1);
            attr.set_pinned(u64::from(is_pinned));
            attr.set_enable_on_exec(u64::from(matches!(self.whom, Whom::AtExec(_))));
        }
        // Only a leader may be alone on the counters.
        let is_alone = is_leader && event.resolved.is_exclusive;
        attr.set_exclusive(u64::from(is_alone));
        if event.only_user {
            attr.set_exclude_kernel(1);
            attr.set_exclude_hv(1);
        }
        attr
    }
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const ENXIO: i32 = 6;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(EPERM | EACCES))
}

fn is_missing(error: &io::Error) -> bool {
    let missing = [ENOENT, ENXIO, ENODEV, EINVAL, ENOSYS, EOPNOTSUPP];
    error.raw_os_error().is_some_and(|e| missing.contains(&e))
}

pub(crate) fn denied(name: &str, on: On) -> Error {
    let whose = match on {
        On::Cpu(_) | On::Cgroup { .. } => "of the whole system".to_owned(),
        On::Thread(tid) => format!("of thread {tid}"),
    };
    Error::CounterDenied {
        name: name.to_owned(),
        whose,
    }
}

fn cpu_of(on: &On) -> Option<u32> {
    match on {
        On::Cpu(cpu) | On::Cgroup { cpu, .. } => Some(*cpu),
        On::Thread(_) => None,
    }
}

/// Where events are opened, at this moment; of a cgroup with its directory.
fn places(whom: &Whom, directory: Option<&File>) -> Result<Vec<On>, Error> {
    let all = || online_cpus().map(Vec::into_iter);
    Ok(match whom {
        Whom::Cgroup(_) => match directory {
            Some(directory) => all()?
                .map(|cpu| On::Cgroup {
                    directory: directory.as_raw_fd(),
                    cpu,
                })
                .collect(),
            None => Vec::new(),
        },
        Whom::Cpus(cpus) if cpus.is_empty() => all()?.map(On::Cpu).collect(),
        Whom::Cpus(cpus) => cpus.iter().copied().map(On::Cpu).collect(),
        Whom::Threads(tids) => tids.iter().copied().map(On::Thread).collect(),
        Whom::AtExec(pid) => vec![On::Thread(*pid)],
        Whom::Processes(pids) => {
            let mut places = Vec::new();
            for pid in pids {
                let threads = Process::new(*pid)?.threads()?;
                places.extend(threads.into_iter().map(On::Thread));
            }
            places
        }
    })
}

/// The kernel's number of a kind of events.
fn kind(number: u32) -> Attr {
    tiptoe_sys::host::perf::attr(number, 0)
}

/// Of software, with this number.
fn software(config: u64) -> Attr {
    with_config(abi::PERF_TYPE_SOFTWARE, config)
}

fn with_config(number: u32, config: u64) -> Attr {
    let mut attr = kind(number);
    attr.config = config;
    attr
}

#[cfg(test)]
mod tests;
