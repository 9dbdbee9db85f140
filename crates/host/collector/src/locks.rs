//! Counts waits for the kernel's locks with BPF programs, as an [`Instrument`] of the run's loop.
//!
//! Every process hits the kernel's tracepoints, so the BPF programs filter by process. An interval has only the
//! number of waits, because the sums by lock and call site are read at the end.

use std::time::Duration;

use tiptoe_event::{Reading, Via, WaitSelection};
use tiptoe_kernel::waits::{Callsites, WaitDrops, Waits, WaitsWanted};
use tiptoe_price::own::OwnUse;
use tiptoe_session::{Cost, CountPart, Dropped, Event, LockNote, Programs, Session};
use tiptoe_sys::host::Process;
use tiptoe_sys::host::kallsyms::KernelSymbols;

use crate::clock::RunClock;
use crate::drive::{Instrument, IntervalCounts, Next, RunEnd, Span, Targets, Turn, run};
use crate::error::{DropReason, Error};
use crate::request::{Observer, Outcome, Progress, Request, RequestTarget, Split};
use crate::words;

mod wait_rows;

/// The pause between two reads of the targets' CPU time. The time since the last read is lost if a target ends.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) struct KernelLocks<'a> {
    request: &'a Request<'a>,
    watched: WaitSelection,
    waits: Waits,
    last: u64,
}

pub(crate) fn locks(
    request: &Request<'_>,
    watched: WaitSelection,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let own = OwnUse::begin();
    let mut locks = KernelLocks::load(request, watched)?;
    let mut targets = Targets::of_request(request, Error::AttachByThread)?;
    locks.choose(&targets)?;
    run(&mut locks, &request.options, &mut targets, &own, observer)
}

impl<'a> KernelLocks<'a> {
    /// Loads the BPF programs, which do not count yet.
    pub(crate) fn load(
        request: &'a Request<'a>,
        watched: WaitSelection,
    ) -> Result<KernelLocks<'a>, Error> {
        let pids = match &request.target {
            RequestTarget::Pids(pids) => Some(pids.clone()),
            RequestTarget::Command(_) => Some(Vec::new()),
            RequestTarget::System => None,
        };
        let split = request.kernel_lock_split();
        for pid in pids.iter().flatten() {
            Process::new(*pid)?.known_in_kernel()?;
        }
        let waits = Waits::load(&WaitsWanted {
            watched,
            pids,
            by_thread: split == Some(Split::Thread),
            by_lock: split == Some(Split::Lock),
        })?;
        Ok(KernelLocks {
            request,
            watched,
            waits,
            last: 0,
        })
    }

    /// Makes the BPF programs count a started command.
    pub(crate) fn choose(&mut self, at: &Targets) -> Result<(), Error> {
        match self.request.is_command() {
            true => Ok(self.waits.choose(&at.pids())?),
            false => Ok(()),
        }
    }

    /// Returns the cost in the counted processes, as the BPF programs measure it. For the whole system, returns the
    /// kernel's measurement of all runs of these programs, if tiptoe may read it.
    fn cost(&self, cpu_ns: u64) -> Result<Cost, Error> {
        let own = self.waits.times()?;
        let all = self.waits.times_of_all();
        let of_target = match self.request.target {
            RequestTarget::System => all.unwrap_or(own),
            _ => own,
        };
        let programs = Programs {
            runs: of_target.runs,
            run_ns: of_target.run_ns,
            all_runs: all.map(|all| all.runs),
            all_run_ns: all.map(|all| all.run_ns),
        };
        Ok(Cost::measured(programs, cpu_ns))
    }
}

impl Instrument for KernelLocks<'_> {
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        self.waits.start()?;
        Ok(at.start_clock())
    }

    fn poll(&mut self, Turn { at, .. }: &mut Turn<'_>) -> Result<Next, Error> {
        at.fetch_cpu_times();
        let is_system = at.counted().next().is_none();
        Ok(Next::Within(if is_system { Duration::MAX } else { LOOK }))
    }

    fn count_interval(&mut self, _: Span, _: &mut Turn<'_>) -> Result<IntervalCounts, Error> {
        let total = self.waits.count()?;
        let count = total.saturating_sub(std::mem::replace(&mut self.last, total));
        let counts = (count > 0).then(|| CountPart::new(self.watched.event(), count));
        Ok(Some(counts.into_iter().collect()))
    }

    fn progress(&mut self, cpu_ns: u64, _: &mut Turn<'_>) -> Result<Option<Progress>, Error> {
        let cost = Some(self.cost(cpu_ns)?);
        let hits = self.waits.count()?;
        Ok(Some(Progress { hits, cost }))
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        let elapsed = turn.clock.elapsed();
        self.waits.stop();
        Ok(elapsed)
    }

    fn section(
        &mut self,
        _ran: &RunEnd,
        at: &Targets,
        session: &mut Session,
    ) -> Result<Cost, Error> {
        // Must be read before the BPF programs are unloaded, because call sites may be in their code.
        let symbols = KernelSymbols::read().unwrap_or_default();
        let callsites = Callsites::new(symbols);
        let found = self.waits.read()?;
        let drops = self.waits.drops()?;
        // The kernel records waits before a command's exec under tiptoe's name. So rows show current names.
        let names = at.names().into_iter().collect();
        let cost = self.cost(session.cpu_ns)?;
        let reading = Reading {
            count: found.iter().map(|row| row.waited.count).sum(),
            lost: drops.total(),
            time_enabled_ns: session.duration_ns,
            time_running_ns: session.duration_ns,
            ..Reading::default()
        };
        let mut all = Event::new(self.watched.event(), Via::Kernel, reading);
        all.cost_ns = cost.programs.map_or(0.0, |sum| sum.run_ns as f64);
        session.events.push(all);
        if callsites.are_hidden() && !found.is_empty() {
            session.notes.push(LockNote::CallsitesHidden.into());
        }
        if drops.no_stack > 0 {
            let waits = drops.no_stack;
            session.notes.push(LockNote::StacksLost { waits }.into());
        }
        let split = self.request.kernel_lock_split();
        session.waits = Some(tiptoe_session::Waits {
            by: split.unwrap_or(Split::Callsite).word().to_owned(),
            rows: wait_rows::rows(&found, split, &callsites, &names),
            unfinished: self.waits.waiting()?,
            drops: dropped(drops),
        });
        Ok(cost)
    }
}

fn dropped(drops: WaitDrops) -> Vec<Dropped> {
    words::dropped([
        (drops.no_begin, DropReason::NoWaitBegin),
        (drops.nested, DropReason::NestedWait),
        (drops.missed, DropReason::Missed),
        (drops.no_end, DropReason::NoWaitEnd),
        (drops.negative, DropReason::NegativeWait),
        (drops.no_room_to_wait, DropReason::ManyWaiters),
        (drops.no_room_for_row, DropReason::ManyRows),
    ])
}
