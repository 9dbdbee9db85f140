//! Waits for the kernel's locks: a driver's loop around BPF programs in the kernel.
//!
//! There is no agent, no patch and no process to follow. The kernel's tracepoints are hit by every
//! process, and the BPF programs filter by process. Rows are read at the end, intervals only their
//! number of waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiptoe_attach::Attached;
use tiptoe_attach::phase::Phase;
use tiptoe_attach::ready::Ready;
use tiptoe_event::{Reading, Via};
use tiptoe_kernel::waits::{Callsites, WaitDrops, Waits, WaitsWanted};
use tiptoe_price::own::OwnUse;
use tiptoe_session::{Cost, CountPart, Dropped, Event, Interval, Programs, Session};
use tiptoe_sys::host::kallsyms::KernelSymbols;
use tiptoe_sys::host::{Process, limits};

use crate::driver::TICK;
use crate::request::{Error, Observer, Outcome, Progress, RequestTarget, by_thread};
use crate::run::{session_target, wait_for_end};
use crate::words;

mod wait_rows;

pub use tiptoe_kernel::waits::WaitSelection;

/// The request for one run.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// Which waits.
    pub watched: WaitSelection,
    /// The processes that wait; `None` is the whole system.
    pub target: Option<RequestTarget>,
    /// What rows are grouped by, besides the lock's type and mode. `None` is the call site, without
    /// its callers.
    pub by: Option<LockBy>,
    /// How long to trace; if `None`, until the target ends or `stop` is set.
    pub duration: Option<Duration>,
    /// How long to wait before counting.
    pub delay: Option<Duration>,
    /// The interval at which the observer gets the counts since the last time.
    pub interval: Option<Duration>,
    /// Set by the caller (on Ctrl-C) to end the trace and get the results.
    pub stop: Arc<AtomicBool>,
    /// As in [`Request`](crate::Request).
    pub hand_on: Arc<AtomicUsize>,
    /// Is notified when counting has begun.
    pub ready: Ready,
}

/// What rows are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockBy {
    /// The call site of the wait, with its callers.
    Callsite,
    /// Only the lock's type and mode.
    Type,
    /// Each lock, by its address.
    Lock,
    /// Each thread.
    Thread,
    /// Each process.
    Process,
    /// Each cgroup of version 2.
    Cgroup,
}

/// Returns the event that a request watches.
fn event(watched: WaitSelection) -> &'static str {
    match watched {
        WaitSelection::Contended => "klock:*",
        WaitSelection::ContendedMmap => "klock:mmap_lock",
        WaitSelection::EveryMmap => "klock:mmap_lock/every/",
    }
}

/// A run in progress.
struct Run<'a> {
    request: &'a LockRequest,
    waits: Waits,
    /// The processes whose waits count.
    targets: Vec<Attached>,
    started_at: SystemTime,
    start: Instant,
    intervals: Vec<Interval>,
}

/// Runs a request until it ends.
pub fn locks(request: &LockRequest, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let own = OwnUse::begin();
    let pids = match &request.target {
        None => None,
        Some(RequestTarget::Pids(pids)) => {
            for pid in pids {
                Process::new(*pid)?.known_in_kernel()?;
            }
            Some(pids.clone())
        }
        Some(RequestTarget::Command(_)) => Some(Vec::new()),
    };
    let mut waits = Waits::load(&WaitsWanted {
        watched: request.watched,
        pids,
        by_thread: request.by == Some(LockBy::Thread),
        by_lock: request.by == Some(LockBy::Lock),
    })?;
    let mut targets = targets(request, &mut waits)?;
    let started_at = SystemTime::now();
    if let Some(time) = request.delay {
        // With a delay, the command begins before the counting.
        targets.iter_mut().try_for_each(Attached::release)?;
        delay(time, request, &targets);
    }
    waits.start()?;
    targets.iter().for_each(Attached::mark);
    let start = Instant::now();
    let counted = targets.iter().map(Attached::counted);
    request.ready.notify(&counted.collect::<Vec<_>>());
    targets.iter_mut().try_for_each(Attached::release)?;
    let mut run = Run {
        request,
        waits,
        targets,
        started_at,
        start,
        intervals: Vec::new(),
    };
    run.watch(observer)?;
    Phase::Ending.begin();
    let duration = run.start.elapsed();
    run.look();
    run.waits.stop();
    let mut session = run.session(duration)?;
    let notes = &mut session.notes;
    let exit_status = wait_for_end(&mut run.targets, &request.hand_on, observer, notes);
    own.report(&mut session);
    Ok(Outcome {
        session,
        exit_status,
    })
}

/// Returns the processes whose waits count; a command is then ready to begin.
fn targets(request: &LockRequest, waits: &mut Waits) -> Result<Vec<Attached>, Error> {
    match &request.target {
        None => Ok(Vec::new()),
        Some(RequestTarget::Pids(pids)) => {
            let targets = pids.iter().map(|pid| Attached::to(*pid).map_err(by_thread));
            targets.collect()
        }
        Some(RequestTarget::Command(command)) => {
            let started = Attached::start_alone(command)?;
            waits.choose(&[started.process.pid()])?;
            Ok(vec![started])
        }
    }
}

/// Waits until counting must begin, or nothing is left to count.
fn delay(time: Duration, request: &LockRequest, targets: &[Attached]) {
    let until = Instant::now() + time;
    let ended = || !targets.is_empty() && targets.iter().all(Attached::has_ended);
    while Instant::now() < until && !request.stop.load(Ordering::Relaxed) && !ended() {
        std::thread::sleep(TICK.min(time));
    }
}

impl Run<'_> {
    /// Runs until the target ends, the duration is over, or the user stops it.
    fn watch(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        let end = self.request.duration.map(|duration| self.start + duration);
        let interval = self.request.interval;
        let mut next = interval.map(|interval| self.start + interval);
        let mut last = (self.start, 0);
        loop {
            let now = Instant::now();
            if let (Some(at), Some(interval)) = (next, interval)
                && now >= at
            {
                next = Some(at + interval);
                last = self.report_interval(last, now, observer)?;
            }
            if observer.wants_progress() {
                observer.progress(&self.progress()?);
            }
            let ended = self.look();
            // Relaxed: the flag orders no other data.
            let stopped = self.request.stop.load(Ordering::Relaxed);
            if stopped || ended || end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            let wake = [next, end].into_iter().flatten().min();
            let pause = wake.map_or(TICK, |at| at.saturating_duration_since(now).min(TICK));
            std::thread::sleep(pause.max(Duration::from_micros(100)));
        }
    }

    /// Reads the CPU time of the targets, if there are any; returns whether all of them have ended.
    fn look(&self) -> bool {
        for target in &self.targets {
            target.fetch_cpu_time();
        }
        !self.targets.is_empty() && self.targets.iter().all(Attached::has_ended)
    }

    /// Returns what was counted so far.
    fn progress(&self) -> Result<Progress, Error> {
        let mut session = Session::default();
        self.describe(&mut session, self.start.elapsed().as_nanos() as u64);
        Ok(Progress {
            hits: self.waits.count()?,
            cost: Some(self.cost(session.cpu_ns)?),
        })
    }

    fn report_interval(
        &mut self,
        (last, before): (Instant, u64),
        now: Instant,
        observer: &mut dyn Observer,
    ) -> Result<(Instant, u64), Error> {
        let total = self.waits.count()?;
        let count = total.saturating_sub(before);
        let counts = (count > 0).then(|| CountPart::new(event(self.request.watched), count));
        let interval = Interval {
            at_ns: (now - self.start).as_nanos() as u64,
            duration_ns: (now - last).as_nanos() as u64,
            counts: counts.into_iter().collect(),
        };
        observer.interval(&interval);
        self.intervals.push(interval);
        Ok((now, total))
    }

    /// Makes the session of what was counted.
    fn session(&mut self, duration: Duration) -> Result<Session, Error> {
        // Must be read before the BPF programs are unloaded, because their own code has names too.
        let symbols = KernelSymbols::read().unwrap_or_default();
        let callsites = Callsites::new(symbols);
        let found = self.waits.read()?;
        let drops = self.waits.drops()?;
        let duration_ns = duration.as_nanos() as u64;
        // Waits before the exec were recorded under our own name.
        let targets = self.targets.iter();
        let names = targets.map(Attached::counted).collect();
        let first = self.targets.first();
        let command = first.map(|target| target.command.clone());
        let mut session = Session::new(command.unwrap_or_default());
        self.describe(&mut session, duration_ns);
        session.cost = self.cost(session.cpu_ns)?;
        let reading = Reading {
            count: found.iter().map(|row| row.waited.count).sum(),
            lost: drops.total(),
            time_enabled_ns: duration_ns,
            time_running_ns: duration_ns,
            ..Reading::default()
        };
        let mut all = Event::new(event(self.request.watched), Via::Kernel, reading);
        all.cost_ns = session.cost.programs.map_or(0.0, |sum| sum.run_ns as f64);
        session.events.push(all);
        session.notes.extend(notes(&callsites, drops, &found));
        session.waits = Some(tiptoe_session::Waits {
            by: wait_rows::word(self.request.by).to_owned(),
            rows: wait_rows::rows(&found, self.request.by, &callsites, &names),
            unfinished: self.waits.waiting()?,
            drops: dropped(drops),
        });
        session.intervals = std::mem::take(&mut self.intervals);
        Ok(session)
    }

    /// Adds the targets, the duration, and the CPU time in it.
    fn describe(&self, session: &mut Session, duration_ns: u64) {
        let since = self.started_at.duration_since(UNIX_EPOCH);
        session.started_unix_ns = since.map_or(0, |since| since.as_nanos() as u64);
        session.duration_ns = duration_ns;
        for target in &self.targets {
            session.cpu_ns += target.cpu_time().as_nanos() as u64;
            session.targets.push(session_target(target));
        }
        if self.request.target.is_none() {
            let cpus = limits::online_cpus();
            session.cpus = Some(cpus);
            session.cpu_ns = duration_ns.saturating_mul(u64::from(cpus));
        }
    }

    /// Returns what the BPF programs cost the target; for the whole system the kernel's own
    /// measure.
    fn cost(&self, cpu_ns: u64) -> Result<Cost, Error> {
        let own = self.waits.times()?;
        let all = self.waits.times_of_all();
        let of_target = match self.request.target {
            None => all.unwrap_or(own),
            Some(_) => own,
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

/// Returns notes of what limits the rows.
fn notes(
    callsites: &Callsites,
    drops: WaitDrops,
    found: &[tiptoe_kernel::waits::WaitRow],
) -> Vec<String> {
    let hidden = (callsites.are_hidden() && !found.is_empty()).then(|| {
        "call sites have no names: the kernel hides its addresses (kernel.kptr_restrict, or \
         cap_syslog is missing)"
            .to_owned()
    });
    let no_stack = (drops.no_stack > 0).then(|| {
        let stacks = words::counted(drops.no_stack, "wait");
        format!("{stacks} without a call site: the stack could not be kept")
    });
    hidden.into_iter().chain(no_stack).collect()
}

/// Returns a text for each reason for which something was dropped.
fn dropped(drops: WaitDrops) -> Vec<Dropped> {
    words::dropped([
        (
            drops.no_begin,
            "ends of waits whose begin was not seen; most began before the trace",
        ),
        (
            drops.nested,
            "begun or ended while another wait was being counted on the same CPU",
        ),
        (
            drops.missed,
            "the kernel did not run the program, which ran already on that CPU",
        ),
        (drops.no_end, "begins of waits whose end was not seen"),
        (drops.negative, "ended before they began, by the clock"),
        (drops.no_room_to_wait, "too many threads waited at once"),
        (
            drops.no_room_for_row,
            "there were more rows than there is room for",
        ),
    ])
}
