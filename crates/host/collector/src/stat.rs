//! Counts perf's events, as an [`Instrument`] of the run's loop.

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tiptoe_event::{Counter, Reading, Via};
use tiptoe_kernel::counters::CountTarget;
use tiptoe_price::own::OwnUse;
use tiptoe_session::{Cost, Count, CountState, Counts, Event, KernelNote, Session, Stat};

use crate::clock::RunClock;
use crate::drive::{
    Instrument, IntervalCounts, Next, RunEnd, Span, Targets, Turn, drive, wait_for_end,
};
use crate::error::Error;
use crate::request::{Observer, Outcome, Progress, Request, RequestTarget};

mod by_process;
mod cgroups;
mod choice;
mod cost;
mod count_sums;
mod cpu_use;
mod fallback;
mod source;

pub use cgroups::{is_at_switches, is_read};

/// The most events that `--for-each-cgroup` can read.
pub const MOST_READ: usize = tiptoe_kernel::cgroups::MOST_EVENTS;

use by_process::KeptTasks;
use count_sums::{CountSource, Runs, Sums};
use cpu_use::Meter;

/// The pause between two reads of the target's CPU time and context switches. If the target ends, the time and
/// switches since the last read are lost.
const LOOK: Duration = Duration::from_millis(100);

struct CounterRequest<'a> {
    request: &'a Request<'a>,
    groups: Vec<Vec<Counter<'a>>>,
}

pub(crate) fn stat(request: &Request<'_>, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let own = OwnUse::begin();
    let counters = CounterRequest {
        request,
        groups: request.counter_groups(),
    };
    let mut session = Session::new(words(request));
    let mut stat = Stat {
        whom: whom(request),
        ..Stat::default()
    };
    let options = &request.options;
    let (mut runs, mut switches, mut total) = (Runs::default(), 0, Sums::default());
    let (mut exit_status, mut at_switches) = (None, Vec::new());
    let mut kept = None;
    for _ in 0..request.counters.repeat.max(1) {
        let mut targets = Targets::of_request(request, Error::Attach)?;
        let mut counting =
            CountingRun::open(&counters, &targets, &mut session, &mut stat, &mut kept)?;
        let ran = drive(&mut counting, options, &mut targets, &mut session, observer)?;
        at_switches = counting.source.at_switches(&counters.groups);
        counting.section(&ran, &targets, &mut session)?;
        let meter;
        (total, meter) = (counting.last, counting.meter);
        let (processes, notes) = (targets.iter_mut(), &mut session.notes);
        exit_status = wait_for_end(processes, &options.hand_on, observer, notes);
        let used = meter.used(&request.target);
        if request.is_command() {
            session.cpu_ns += used.user_ns + used.sys_ns;
        }
        switches += used.switches;
        let has_ended = ran.has_ended && command(request).is_some();
        runs.add(&total, ran.elapsed, has_ended.then_some(used));
        // Relaxed: the flag orders no other data.
        if options.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    session.events = events(&total);
    runs.finish(&mut stat);
    cost::put(request, &at_switches, &mut session, &mut stat, switches);
    session.stat = Some(stat);
    own.report(&mut session);
    Ok(Outcome {
        session,
        exit_status,
    })
}

struct CountingRun<'a> {
    request: &'a Request<'a>,
    source: Box<dyn CountSource>,
    meter: Meter,
    stat: &'a mut Stat,
    /// The sums at the end of the last interval, or of the run.
    last: Sums,
}

impl<'a> CountingRun<'a> {
    fn open(
        counters: &CounterRequest<'a>,
        targets: &Targets,
        session: &mut Session,
        stat: &'a mut Stat,
        kept: &mut KeptTasks,
    ) -> Result<CountingRun<'a>, Error> {
        let request = counters.request;
        let whom = match (&request.target, targets.alone.as_slice()) {
            (RequestTarget::Command(_), [command]) => CountTarget::AtExec(command.process.pid()),
            (RequestTarget::Pids(pids), _) => CountTarget::Processes(pids.clone()),
            _ => CountTarget::Cpus(Vec::new()),
        };
        Ok(CountingRun {
            request,
            source: source::open(counters, &whom, &mut session.notes, kept)?,
            meter: Meter::default(),
            stat,
            last: Sums::default(),
        })
    }
}

impl Instrument for CountingRun<'_> {
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        // A command's events are enabled at its exec.
        if !self.request.is_command() {
            self.source.enable()?;
        }
        self.meter = Meter::start(at);
        self.last = self.source.sums(self.request.counters.per_cpu)?;
        Ok(at.start_clock())
    }

    fn poll(&mut self, Turn { at, .. }: &mut Turn<'_>) -> Result<Next, Error> {
        // A command's usage is read after the command was reaped.
        if !self.request.is_command() {
            at.fetch_cpu_times();
            self.meter.look(at);
        }
        self.source.tidy()?;
        Ok(Next::Within(LOOK))
    }

    fn count_interval(&mut self, span: Span, turn: &mut Turn<'_>) -> Result<IntervalCounts, Error> {
        let sums = self.source.sums(self.request.counters.per_cpu)?;
        turn.observer.counts(&Counts {
            at_ns: span.end.as_nanos() as u64,
            duration_ns: (span.end - span.start).as_nanos() as u64,
            counts: sums.counts(Some(&self.last)),
        });
        *self.stat.intervals.get_or_insert(0) += 1;
        self.last = sums;
        Ok(None)
    }

    fn reports_rest(&self) -> bool {
        true
    }

    fn progress(&mut self, _cpu_ns: u64, turn: &mut Turn<'_>) -> Result<Option<Progress>, Error> {
        let counts = self.source.sums(false)?.counts(None);
        turn.observer.counts_so_far(&counts);
        Ok(None)
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        // A command that has ended does not count any more, and disabling may wait for the ends of its last tasks.
        let elapsed = turn.clock.elapsed();
        self.source.disable()?;
        Ok(match self.request.is_command() && turn.at.have_ended() {
            true => elapsed,
            false => turn.clock.elapsed(),
        })
    }

    /// Returns no cost, because the cost is known only once all runs have ended.
    fn section(&mut self, _: &RunEnd, _: &Targets, session: &mut Session) -> Result<Cost, Error> {
        self.last = self.source.sums(self.request.counters.per_cpu)?;
        if !self.source.is_complete() {
            session.notes.push(KernelNote::ThreadsMissing.into());
        }
        if let Some((notes, times)) = self.source.finish()? {
            let add = |note| source::add(&mut session.notes, note);
            notes.into_iter().for_each(add);
            cost::add_times(self.stat, times);
        }
        Ok(Cost::default())
    }
}

fn events(sums: &Sums) -> Vec<Event> {
    let counted = sums
        .counts(None)
        .into_iter()
        .zip(sums.raw())
        .filter(|(count, _)| {
            let is_whole = count.cpu.is_none() && count.cgroup.is_none();
            is_whole && count.state != CountState::NotSupported
        });
    let event = |(count, raw): (Count, u64)| {
        let reading = Reading {
            count: raw,
            time_enabled_ns: count.time_enabled_ns,
            time_running_ns: count.time_running_ns,
            ..Reading::default()
        };
        Event::new(count.event, Via::Kernel, reading)
    };
    counted.map(event).collect()
}

fn command<'a>(request: &'a Request<'_>) -> Option<&'a [OsString]> {
    match &request.target {
        RequestTarget::Command(command) => Some(command),
        _ => request.meanwhile.as_deref(),
    }
}

fn words(request: &Request<'_>) -> Vec<String> {
    let words = command(request).into_iter().flatten();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn whom(request: &Request<'_>) -> String {
    match &request.target {
        RequestTarget::System => "'system wide'".into(),
        RequestTarget::Command(_) => format!("'{}'", words(request).join(" ")),
        RequestTarget::Pids(pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("process id '{}'", pids.join(","))
        }
    }
}
