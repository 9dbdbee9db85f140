//! Breakpoint events on each thread of a process. They cost time at each switch to and from these threads.
//!
//! A new thread inherits its parent's events. A thread that is born while its parent's events are opened may inherit
//! only some, which must not be opened twice. So an opening (of one thread) that races with a birth ([`Births`]) is
//! closed and repeated, until each thread has its events exactly once, for at most [`LONGEST`].

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

use tiptoe_sys::host::Process;
use tiptoe_sys::host::limits::reserve_open_files;
use tiptoe_sys::host::perf::{Breakpoint, PerfEvent};
use tiptoe_sys::raw::monotonic_ns;

use super::births::{Births, Inheritance};
use super::heirs::Heirs;
use super::opener::{Opener, cannot_move, cannot_switch_on};
use super::slots::{Slots, Watch};
use crate::Error;

/// From this many threads on, tiptoe opens events in parallel.
const MANY: usize = 32;
/// Attaching ends after this many scans in a row that found nothing to do, but not before [`SHORTEST`].
const QUIET: u32 = 3;
const SHORTEST: Duration = Duration::from_millis(20);
/// A thread whose birth is not reported within this time is older than the BPF programs.
const OLD: Duration = Duration::from_millis(20);
/// The longest wait for a clone(2) to end, because the end of a failed clone is not reported.
const LONGEST_CLONE: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Tasks {
    openings: Vec<Opening>,
    pub(super) attached: AttachSummary,
    pub(super) heirs: Box<Heirs>,
}

#[derive(Debug)]
struct Opening {
    number: u32,
    tid: u32,
    events: Vec<PerfEvent>,
    /// Whether the living thread's debug registers are reserved. After the attach, [`Heirs`] releases them.
    is_accounted: bool,
}

/// How threads got their events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachSummary {
    /// Threads with events of their own.
    pub threads: u32,
    /// Openings repeated after a race with a birth.
    pub again: u32,
    /// Threads that started while an agent opened breakpoints.
    pub late: u32,
    /// Threads that still had no events when attaching gave up.
    pub without: u32,
    /// How long attaching took.
    pub took: Duration,
}

struct Attach<'a> {
    process: Process,
    opener: Opener<'a>,
    slots: &'a Slots,
    served: &'a [(usize, Breakpoint)],
    watches: Vec<Watch>,
    births: Mutex<Births>,
    next: AtomicU32,
}

enum OpenOutcome {
    Has(Opening),
    HasEnded(u32),
    /// No register is free. Inherited events may hold the registers until tiptoe closes them.
    IsFull(Error),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Serving {
    pub(super) at: Breakpoint,
    pub(super) in_kernel: bool,
    pub(super) is_on: bool,
}

impl Tasks {
    pub(super) fn attach(
        process: Process,
        opener: Opener<'_>,
        slots: &Slots,
        served: &[(usize, Breakpoint)],
    ) -> Result<Tasks, Error> {
        let attach = Attach {
            process,
            opener,
            slots,
            served,
            watches: Watch::all(served),
            births: Mutex::new(Births::follow(process.pid())?),
            next: AtomicU32::new(1),
        };
        let (openings, attached) = attach.run()?;
        let Attach {
            watches, births, ..
        } = attach;
        let births = births.into_inner().map_err(|_| Error::NoRoom)?;
        let booked = openings.iter().filter(|opening| opening.is_accounted);
        let booked = booked.map(|opening| opening.tid).collect();
        Ok(Tasks {
            heirs: Box::new(Heirs::begin(births, booked, slots, &watches)?),
            openings,
            attached,
        })
    }

    /// Enables all events, twice, because a thread that is born during the first pass may inherit disabled events.
    pub(super) fn enable(&self) -> Result<(), Error> {
        for _ in 0..2 {
            let mut events = self.events();
            events
                .try_for_each(PerfEvent::enable)
                .map_err(cannot_switch_on)?;
        }
        Ok(())
    }

    pub(super) fn disable(&self) -> Result<(), Error> {
        let mut events = self.events();
        events
            .try_for_each(PerfEvent::disable)
            .map_err(cannot_switch_on)
    }

    /// Each event is enabled right after its move, because the thread misses accesses in between.
    pub(super) fn serve(
        &self,
        slot: usize,
        from: Watch,
        to: Watch,
        slots: &Slots,
        serving: Serving,
    ) -> Result<(), Error> {
        for tid in self.heirs.booked() {
            slots.move_for(tid, from, to)?;
        }
        for opening in &self.openings {
            let event = &opening.events[slot];
            let moved = event.move_breakpoint(&serving.at, serving.in_kernel, true);
            moved.map_err(cannot_move)?;
            if serving.is_on {
                event.enable().map_err(cannot_switch_on)?;
            }
        }
        Ok(())
    }

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

struct ThreadScan {
    openings: Vec<Opening>,
    /// Threads that existed before anything was opened.
    first: HashSet<u32>,
    /// Threads whose events tiptoe tried to open. If [`Births`] does not know such a thread, it has ended.
    tried: HashSet<u32>,
    /// Threads that are not in `first` and have no reported birth. `undecided_since` is when one was last added.
    undecided: Vec<u32>,
    undecided_since: Instant,
    done: Instant,
    done_ns: u64,
    /// Scans in a row in which a thread found no free register.
    full: u32,
    again: u32,
}

impl Attach<'_> {
    fn run(&self) -> Result<(Vec<Opening>, AttachSummary), Error> {
        let start = Instant::now();
        let mut looks = ThreadScan {
            openings: Vec::new(),
            first: self.process.threads()?.into_iter().collect(),
            tried: HashSet::new(),
            undecided: Vec::new(),
            undecided_since: start,
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
                let (missing, undecided) = self.look(&mut looks)?;
                without = missing.len() + undecided;
                break;
            }
            match self.improve(&mut looks)? {
                true => {
                    quiet += 1;
                    sleep(PAUSE);
                }
                // No pause, because births in between would leave more to do. `LONGEST` bounds the loop.
                false => quiet = 0,
            }
        }
        if looks.openings.is_empty() {
            return Err(Error::NoSuchThread);
        }
        let attached = AttachSummary {
            threads: looks.openings.len() as u32,
            again: looks.again,
            late: 0,
            without: without as u32,
            took: start.elapsed(),
        };
        Ok((looks.openings, attached))
    }

    /// Closes openings that raced with a birth, and opens missing events. Returns whether there was nothing to do, and
    /// no clone(2) can still overlap an opening.
    fn improve(&self, looks: &mut ThreadScan) -> Result<bool, Error> {
        let without = self.births()?.threads_without_events();
        let closed = self.close_spoilt(looks)?;
        let (missing, undecided) = self.look(looks)?;
        self.open_missing(looks, &missing)?;
        let births = self.births()?;
        let may_overlap =
            looks.done.elapsed() < LONGEST_CLONE && births.is_cloning_since(looks.done_ns)?;
        let is_same = births.threads_without_events() == without;
        Ok(missing.is_empty() && undecided == 0 && closed == 0 && is_same && !may_overlap)
    }

    fn look(&self, looks: &mut ThreadScan) -> Result<(Vec<u32>, usize), Error> {
        let numbers: HashSet<u32> = looks.openings.iter().map(|o| o.number).collect();
        let (mut missing, mut undecided) = (Vec::new(), Vec::new());
        let threads: HashSet<u32> = self.process.threads()?.into_iter().collect();
        for opening in looks.openings.iter_mut().filter(|o| o.is_accounted) {
            if !threads.contains(&opening.tid) {
                // The opening stays for threads that inherited its events. The reservation is released, because the
                // dead thread's id may be reused.
                self.slots.release_for(opening.tid, &self.watches)?;
                opening.is_accounted = false;
            }
        }
        for tid in threads {
            match self.births()?.inheritance(tid)? {
                Inheritance::Events(number) if numbers.contains(&number) => {}
                Inheritance::Events(_) | Inheritance::NoEvents => missing.push(tid),
                Inheritance::Unknown if looks.tried.contains(&tid) => {}
                Inheritance::Unknown if looks.first.contains(&tid) => missing.push(tid),
                Inheritance::Unknown => undecided.push(tid),
            }
        }
        if undecided.iter().any(|tid| !looks.undecided.contains(tid)) {
            looks.undecided_since = Instant::now();
        } else if looks.undecided_since.elapsed() > OLD {
            missing.append(&mut undecided);
        }
        looks.undecided = undecided;
        Ok((missing, looks.undecided.len()))
    }

    fn open_missing(&self, looks: &mut ThreadScan, missing: &[u32]) -> Result<(), Error> {
        if missing.is_empty() {
            return Ok(());
        }
        let mut full = None;
        for opened in self.open_all(missing)? {
            match opened {
                OpenOutcome::Has(opening) => {
                    looks.tried.insert(opening.tid);
                    looks.openings.push(opening);
                }
                OpenOutcome::HasEnded(tid) => {
                    looks.tried.insert(tid);
                }
                OpenOutcome::IsFull(error) => full = Some(error),
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

    fn close_spoilt(&self, looks: &mut ThreadScan) -> Result<usize, Error> {
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

    fn open_all(&self, tids: &[u32]) -> Result<Vec<OpenOutcome>, Error> {
        reserve_open_files((tids.len() * self.served.len()) as u64)?;
        let some = |tids: &[u32]| -> Result<Vec<OpenOutcome>, Error> {
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

    fn open(&self, tid: u32) -> Result<OpenOutcome, Error> {
        self.slots.reserve_for(tid, &self.watches)?;
        // Relaxed: the numbers must only differ.
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
                Error::NoSuchThread => Ok(OpenOutcome::HasEnded(tid)),
                Error::NoSlot { .. } => Ok(OpenOutcome::IsFull(error)),
                error => Err(error),
            };
        }
        self.births()?.done(number, monotonic_ns())?;
        Ok(OpenOutcome::Has(Opening {
            number,
            tid,
            events,
            is_accounted: true,
        }))
    }
}
