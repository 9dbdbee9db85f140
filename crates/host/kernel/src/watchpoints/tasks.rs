//! The events of a process's threads, each with what comes of it: for those who may not watch whole CPUs, and for
//! addresses that other processes use, too. They cost each switch to and from these threads.
//!
//! Threads are born and die while events are opened, and a thread inherits its parent's. So births are followed
//! ([`Births`]), and it is opened, looked and closed again where that is not clear, until each thread that there is
//! has its events once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use tiptoe_sys::host::Process;
use tiptoe_sys::host::limits::reserve_open_files;
use tiptoe_sys::host::perf::{Breakpoint, PerfEvent};
use tiptoe_sys::raw::monotonic_ns;

use super::births::{Births, Known};
use super::opener::{Opener, cannot_move, cannot_switch_on};
use super::slots::{Slots, Watch};
use crate::Error;

/// More threads than this are opened for by all CPUs at once.
const MANY: usize = 32;
/// So many looks in a row that find nothing new, and so long after it began, it is done.
const QUIET: u32 = 3;
const SHORTEST: Duration = Duration::from_millis(20);
/// A thread that nobody was told of for so long was there before.
const OLD: Duration = Duration::from_millis(20);
/// A clone(2) that failed looks as if it took long: it is not waited for longer than this.
const LONGEST_CLONE: Duration = Duration::from_millis(100);
/// It is not tried longer than this.
const LONGEST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Events of threads.
#[derive(Debug)]
pub(super) struct Tasks {
    openings: Vec<Opening>,
    /// What each slot serves.
    served: Vec<(Watch, Breakpoint)>,
    attached: Attached,
}

/// The events of a thread, one for each slot, and of all that came of it.
#[derive(Debug)]
struct Opening {
    number: u32,
    tid: u32,
    events: Vec<PerfEvent>,
    /// Its registers are reserved: the thread lives.
    is_accounted: bool,
}

/// How the threads of a process got their events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Threads that events were opened for.
    pub threads: u32,
    /// How often one was opened for again, as a birth came in between.
    pub again: u32,
    /// Threads that are without, as they came and went too fast.
    pub without: u32,
    /// How long it took.
    pub took: Duration,
}

/// What all that open have at hand.
struct Attach<'a> {
    process: Process,
    opener: Opener<'a>,
    slots: &'a Slots,
    served: &'a [(Watch, Breakpoint)],
    watches: Vec<Watch>,
    births: Mutex<Births>,
    next: AtomicU32,
}

/// What became of one.
enum Opened {
    Has(Opening),
    HasEnded(u32),
    /// No slot is left: it may have inherited what is to be closed.
    IsFull(Error),
}

impl Tasks {
    /// Opens events for all threads of a process. All are on.
    pub(super) fn attach(
        process: Process,
        opener: Opener<'_>,
        slots: &Slots,
        served: Vec<(Watch, Breakpoint)>,
    ) -> Result<Tasks, Error> {
        let attach = Attach {
            process,
            opener,
            slots,
            served: &served,
            watches: served.iter().map(|(watch, _)| *watch).collect(),
            births: Mutex::new(Births::follow(process.pid())?),
            next: AtomicU32::new(1),
        };
        let (openings, attached) = attach.run()?;
        Ok(Tasks {
            openings,
            served,
            attached,
        })
    }

    pub(super) fn attached(&self) -> Attached {
        self.attached
    }

    /// Switches all of them on; it is done twice, as a thread may be born while it is done.
    pub(super) fn enable(&self) -> Result<(), Error> {
        for _ in 0..2 {
            let mut events = self.events();
            events
                .try_for_each(PerfEvent::enable)
                .map_err(cannot_switch_on)?;
        }
        Ok(())
    }

    /// Switches all of them off.
    pub(super) fn disable(&self) -> Result<(), Error> {
        let mut events = self.events();
        events
            .try_for_each(PerfEvent::disable)
            .map_err(cannot_switch_on)
    }

    /// Has a slot serve something else; it is on then.
    pub(super) fn serve(
        &mut self,
        slot: usize,
        to: (Watch, Breakpoint),
        slots: &Slots,
        in_kernel: bool,
        is_on: bool,
    ) -> Result<(), Error> {
        let (from, _) = std::mem::replace(&mut self.served[slot], to);
        let (watch, at) = to;
        for opening in &self.openings {
            if opening.is_accounted {
                slots.move_for(opening.tid, from, watch)?;
            }
            let event = &opening.events[slot];
            let moved = event.move_breakpoint(&at, in_kernel, true);
            moved.map_err(cannot_move)?;
            if is_on {
                event.enable().map_err(cannot_switch_on)?;
            }
        }
        Ok(())
    }

    /// Reads an event of every thread on the CPU on which that runs, if it does.
    pub(super) fn reach_cpus(&self) -> std::io::Result<()> {
        let mut firsts = self
            .openings
            .iter()
            .filter_map(|opening| opening.events.first());
        firsts.try_for_each(|event| event.read().map(drop))
    }

    fn events(&self) -> impl Iterator<Item = &PerfEvent> {
        self.openings.iter().flat_map(|opening| &opening.events)
    }
}

/// What the looks so far have shown.
struct Looks {
    openings: Vec<Opening>,
    /// Threads that were there before anything was opened.
    first: HashSet<u32>,
    /// Threads that were opened for: whoever is one and is not known has ended.
    tried: HashSet<u32>,
    /// Threads that nobody was told of, and since when they are the same.
    untold: Vec<u32>,
    untold_since: Instant,
    /// When the last opening was done, by both clocks.
    done: Instant,
    done_ns: u64,
    /// Looks in a row that found no slot for a thread.
    full: u32,
    again: u32,
}

impl Attach<'_> {
    fn run(&self) -> Result<(Vec<Opening>, Attached), Error> {
        let start = Instant::now();
        let mut looks = Looks {
            openings: Vec::new(),
            // Nothing is open yet, so that these inherit nothing.
            first: self.process.threads()?.into_iter().collect(),
            tried: HashSet::new(),
            untold: Vec::new(),
            untold_since: start,
            done: start,
            done_ns: 0,
            full: 0,
            again: 0,
        };
        let mut first: Vec<u32> = looks.first.iter().copied().collect();
        first.sort_unstable();
        self.open_missing(&mut looks, &first)?;
        let (mut quiet, mut without) = (0, 0);
        while quiet < QUIET || start.elapsed() < SHORTEST {
            if start.elapsed() > LONGEST {
                let (missing, untold) = self.look(&mut looks)?;
                without = missing.len() + untold;
                break;
            }
            match self.improve(&mut looks)? {
                true => {
                    quiet += 1;
                    sleep(PAUSE);
                }
                // No pause: threads that are born meanwhile would spoil more openings. `LONGEST` is the bound.
                false => quiet = 0,
            }
        }
        if looks.openings.is_empty() {
            return Err(Error::NoSuchThread);
        }
        let attached = Attached {
            threads: looks.openings.len() as u32,
            again: looks.again,
            without: without as u32,
            took: start.elapsed(),
        };
        Ok((looks.openings, attached))
    }

    /// Closes and opens where that is needed; whether nothing was, and nothing was born that may need it.
    fn improve(&self, looks: &mut Looks) -> Result<bool, Error> {
        let without = self.births()?.without();
        let closed = self.close_spoilt(looks)?;
        let (missing, untold) = self.look(looks)?;
        self.open_missing(looks, &missing)?;
        let births = self.births()?;
        let may_overlap =
            looks.done.elapsed() < LONGEST_CLONE && births.is_cloning_since(looks.done_ns)?;
        let is_same = births.without() == without;
        Ok(missing.is_empty() && untold == 0 && closed == 0 && is_same && !may_overlap)
    }

    /// The threads that have no events, and how many there are of which it is not known yet.
    fn look(&self, looks: &mut Looks) -> Result<(Vec<u32>, usize), Error> {
        let numbers: HashSet<u32> = looks.openings.iter().map(|o| o.number).collect();
        let (mut missing, mut untold) = (Vec::new(), Vec::new());
        let threads: HashSet<u32> = self.process.threads()?.into_iter().collect();
        for opening in looks.openings.iter_mut().filter(|o| o.is_accounted) {
            if !threads.contains(&opening.tid) {
                // What it left to others is not its own any more, and its number may be given again.
                self.slots.release_for(opening.tid, &self.watches)?;
                opening.is_accounted = false;
            }
        }
        for tid in threads {
            match self.births()?.known(tid)? {
                Known::With(number) if numbers.contains(&number) => {}
                Known::With(_) | Known::Without => missing.push(tid),
                Known::Nothing if looks.tried.contains(&tid) => {}
                Known::Nothing if looks.first.contains(&tid) => missing.push(tid),
                Known::Nothing => untold.push(tid),
            }
        }
        if untold.iter().any(|tid| !looks.untold.contains(tid)) {
            looks.untold_since = Instant::now();
        } else if looks.untold_since.elapsed() > OLD {
            missing.append(&mut untold);
        }
        looks.untold = untold;
        Ok((missing, looks.untold.len()))
    }

    fn open_missing(&self, looks: &mut Looks, missing: &[u32]) -> Result<(), Error> {
        if missing.is_empty() {
            return Ok(());
        }
        let mut full = None;
        for opened in self.open_all(missing)? {
            match opened {
                Opened::Has(opening) => {
                    looks.tried.insert(opening.tid);
                    looks.openings.push(opening);
                }
                Opened::HasEnded(tid) => {
                    looks.tried.insert(tid);
                }
                Opened::IsFull(error) => full = Some(error),
            }
        }
        looks.done = Instant::now();
        looks.done_ns = monotonic_ns();
        looks.full = if full.is_some() { looks.full + 1 } else { 0 };
        match full.filter(|_| looks.full >= QUIET) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn births(&self) -> Result<MutexGuard<'_, Births>, Error> {
        self.births.lock().map_err(|_| Error::NoRoom)
    }

    /// Closes what nobody knows of who inherited it; how many that were.
    fn close_spoilt(&self, looks: &mut Looks) -> Result<usize, Error> {
        let spoilt = self.births()?.spoilt()?;
        for number in &spoilt {
            let mut openings = looks.openings.iter();
            if let Some(at) = openings.position(|o| o.number == *number) {
                let opening = looks.openings.swap_remove(at);
                if opening.is_accounted {
                    self.slots.release_for(opening.tid, &self.watches)?;
                }
                looks.again += 1;
            }
            self.births()?.forget(*number)?;
        }
        Ok(spoilt.len())
    }

    /// Opens events for each of these that still lives.
    fn open_all(&self, tids: &[u32]) -> Result<Vec<Opened>, Error> {
        reserve_open_files((tids.len() * self.served.len()) as u64)?;
        let some = |tids: &[u32]| -> Result<Vec<Opened>, Error> {
            tids.iter().map(|tid| self.open(*tid)).collect()
        };
        let workers = available_parallelism().map_or(1, usize::from);
        if tids.len() < MANY || workers == 1 {
            return some(tids);
        }
        let shares = tids.chunks(tids.len().div_ceil(workers));
        let done: Vec<Result<_, Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> = shares.map(|tids| scope.spawn(move || some(tids))).collect();
            let threads = threads.into_iter();
            let joined = threads.map(|thread| thread.join().unwrap_or(Err(Error::NoRoom)));
            joined.collect()
        });
        let done: Vec<Vec<_>> = done.into_iter().collect::<Result<_, _>>()?;
        Ok(done.into_iter().flatten().collect())
    }

    fn open(&self, tid: u32) -> Result<Opened, Error> {
        self.slots.reserve_for(tid, &self.watches)?;
        // Relaxed: only that no two are the same matters.
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.births()?.begin(number, tid)?;
        let mut events = Vec::with_capacity(self.served.len());
        let opened = self.served.iter().try_for_each(|(_, at)| {
            events.push(self.opener.open_inherited(at, tid)?);
            Ok(())
        });
        if let Err(error) = opened {
            drop(events);
            self.slots.release_for(tid, &self.watches)?;
            self.births()?.give_up(number, tid)?;
            return match error {
                Error::NoSuchThread => Ok(Opened::HasEnded(tid)),
                Error::NoSlot { .. } => Ok(Opened::IsFull(error)),
                error => Err(error),
            };
        }
        self.births()?.done(number, monotonic_ns())?;
        Ok(Opened::Has(Opening {
            number,
            tid,
            events,
            is_accounted: true,
        }))
    }
}
