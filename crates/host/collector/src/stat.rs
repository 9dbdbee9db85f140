//! Counts events by perf's names: a driver's loop around sets of perf events.
//!
//! Nothing is traced. The kernel counts, and only sums are read: at the end, or at each interval.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tiptoe_attach::phase::Phase;
use tiptoe_attach::ready::Ready;
use tiptoe_attach::{AttachError, Attached};
use tiptoe_event::{Counter, Reading, Via};
use tiptoe_kernel::counters::CountTarget;
use tiptoe_price::own::OwnUse;
use tiptoe_session::{Count, CountState, Counts, Event, Session, Stat};
use tiptoe_sys::host::ends::Ends;
use tiptoe_sys::host::limits;

use crate::request::{Error, Observer, Outcome};
use crate::run::wait_for_end;

mod cgroups;
mod choice;
mod cost;
mod count_sums;
mod fallback;
mod source;
mod used;

pub use cgroups::{is_at_switches, is_read};

/// The most events that `--for-each-cgroup` can read.
pub const MOST_READ: usize = tiptoe_kernel::cgroups::MOST_EVENTS;

use count_sums::{Runs, Sums};
use source::Source;
use used::CpuUse;

/// The pause between two reads of what the target used, because its end removes that.
const LOOK: Duration = Duration::from_millis(100);

/// The request for one run.
#[derive(Clone, Debug)]
pub struct StatRequest<'a> {
    /// Groups of events, the leader first.
    pub groups: Vec<Vec<Counter<'a>>>,
    /// What is counted.
    pub whom: StatWhom,
    /// Also count for each of these cgroups, by path or pattern; then everything on the system is
    /// counted.
    pub cgroups: Option<Vec<String>>,
    /// A command to start. Either it is counted, or other things are as long as it runs.
    pub command: Option<Vec<OsString>>,
    /// The interval at which the observer gets the counts since the last time.
    pub interval: Option<Duration>,
    /// Report each CPU separately.
    pub per_cpu: bool,
    /// How often the command runs.
    pub repeat: u32,
    /// How long to count; if `None`, until the target ends or `stop` is set.
    pub duration: Option<Duration>,
    /// Set by the caller (on Ctrl-C) to end and get the results.
    pub stop: Arc<AtomicBool>,
    /// As in [`Request`](crate::Request).
    pub hand_on: Arc<AtomicUsize>,
    /// Is notified when counting has begun.
    pub ready: Ready,
}

/// What is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatWhom {
    /// The whole system.
    All,
    /// Running processes, and their later threads and children.
    Pids(Vec<u32>),
    /// The command, and its later threads and children.
    Command,
}

/// One run of the command, or of the time without one.
struct Once {
    sums: Sums,
    elapsed: Duration,
    used: CpuUse,
    exit_status: Option<i32>,
    /// The command ended by itself while it was counted.
    has_ended: bool,
    is_complete: bool,
    is_free: bool,
}

/// Runs a request until it ends.
pub fn stat(request: &StatRequest<'_>, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let own = OwnUse::begin();
    let started_at = SystemTime::now();
    let mut session = Session::new(words(request));
    let mut stat = Stat {
        whom: whom(request),
        ..Stat::default()
    };
    let (mut runs, mut used, mut total) = (Runs::default(), CpuUse::default(), Sums::default());
    let (mut exit_status, mut is_free) = (None, false);
    for _ in 0..request.repeat.max(1) {
        let once = once(request, observer, &mut session, &mut stat)?;
        (exit_status, is_free) = (once.exit_status, once.is_free);
        runs.add(
            &once.sums,
            once.elapsed,
            once.has_ended.then_some(once.used),
        );
        used = used + once.used;
        session.duration_ns += once.elapsed.as_nanos() as u64;
        if !once.is_complete {
            session.notes.push(
                "threads kept starting while the events were opened: some threads may be missing"
                    .into(),
            );
        }
        total = once.sums;
        // Relaxed: the flag orders no other data.
        if request.stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let since = started_at.duration_since(UNIX_EPOCH);
    session.started_unix_ns = since.map_or(0, |since| since.as_nanos() as u64);
    if request.whom == StatWhom::All {
        let cpus = limits::online_cpus();
        session.cpus = Some(cpus);
        used.cpu_ns = session.duration_ns * u64::from(cpus);
    }
    session.cpu_ns = used.cpu_ns;
    session.events = events(&total);
    runs.finish(&mut stat, total);
    // Without events nothing runs at context switches, so that nothing costs.
    if !is_free {
        cost::put(request, &mut session, &mut stat, used.switches);
    }
    session.stat = Some(stat);
    own.report(&mut session);
    Ok(Outcome {
        session,
        exit_status,
    })
}

fn once(
    request: &StatRequest<'_>,
    observer: &mut dyn Observer,
    session: &mut Session,
    stat: &mut Stat,
) -> Result<Once, Error> {
    let command = request.command.as_deref().map(Attached::start_alone);
    let mut command = command.transpose()?;
    let targets = targets(&request.whom)?;
    let whom = match (&request.whom, &command) {
        (StatWhom::Command, Some(command)) => CountTarget::AtExec(command.process.pid()),
        (StatWhom::Pids(pids), _) => CountTarget::Processes(pids.clone()),
        _ => CountTarget::Cpus(Vec::new()),
    };
    let mut source = Source::open(request, &whom, &mut session.notes)?;
    let counted = match request.whom {
        StatWhom::Command => command.as_slice(),
        _ => &targets,
    };
    let counted: Vec<_> = counted.iter().map(Attached::counted).collect();
    // A command's end ends the run, whatever is counted.
    let ended_by = command.as_ref().map_or(&targets[..], std::slice::from_ref);
    let ended_by: Vec<u32> = ended_by.iter().map(|one| one.process.pid()).collect();
    let ends = (!ended_by.is_empty()).then(|| Ends::of(&ended_by));
    let mut meter = used::Meter::new(&request.whom, targets, command.is_some());
    if request.whom != StatWhom::Command {
        source.enable()?;
    }
    meter.start();
    // Must be read before the command is released, which may call exec at once.
    let last = source.sums(request.per_cpu)?;
    let start = Instant::now();
    request.ready.notify(&counted);
    command.iter_mut().try_for_each(Attached::release)?;
    let mut counting = Counting {
        request,
        source: &mut source,
        start,
        last,
    };
    let has_ended = counting.wait(ends, &mut meter, observer, stat)?;
    Phase::Ending.begin();
    counting.source.disable()?;
    let elapsed = start.elapsed();
    if request.interval.is_some() && (start + elapsed) > counting.last.at {
        counting.report_interval(observer, stat)?;
    }
    meter.look();
    let sums = source.sums(request.per_cpu)?;
    let (is_complete, is_free) = (source.is_complete(), source.is_free());
    source.finish(session, stat)?;
    drop(source);
    let notes = &mut session.notes;
    let exit_status = wait_for_end(&mut command, &request.hand_on, observer, notes);
    meter.reaped();
    Ok(Once {
        sums,
        elapsed,
        used: meter.used(),
        exit_status,
        has_ended: has_ended && request.command.is_some(),
        is_complete,
        is_free,
    })
}

/// A set that counts.
struct Counting<'a> {
    request: &'a StatRequest<'a>,
    source: &'a mut Source,
    start: Instant,
    /// The sums of the last interval.
    last: Sums,
}

impl Counting<'_> {
    /// Waits until the target ends, the duration is over, or the user stops it; returns whether the
    /// target ended.
    fn wait(
        &mut self,
        mut ends: Option<Ends>,
        meter: &mut used::Meter,
        observer: &mut dyn Observer,
        stat: &mut Stat,
    ) -> Result<bool, Error> {
        let end = self.request.duration.map(|duration| self.start + duration);
        let interval = self.request.interval;
        let mut next = interval.map(|interval| self.start + interval);
        loop {
            let now = Instant::now();
            // Relaxed: the flag orders no other data.
            if self.request.stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end) {
                return Ok(false);
            }
            if let (Some(at), Some(interval)) = (next, interval)
                && now >= at
            {
                self.report_interval(observer, stat)?;
                // If tiptoe is late, the interval is longer, but none is made up for.
                next = Some((at + interval).max(now));
            }
            let wake = [next, end].into_iter().flatten().min();
            let pause = wake.map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
            match &mut ends {
                Some(ends) => {
                    if ends.wait(pause) {
                        return Ok(true);
                    }
                }
                None => std::thread::sleep(pause),
            }
            meter.look();
            self.source.tidy()?;
            if observer.wants_progress() {
                let sums = self.source.sums(false)?;
                observer.counts_so_far(&sums.counts(None));
            }
        }
    }

    /// Reports what was counted since the last interval.
    fn report_interval(
        &mut self,
        observer: &mut dyn Observer,
        stat: &mut Stat,
    ) -> Result<(), Error> {
        let sums = self.source.sums(self.request.per_cpu)?;
        let duration = sums
            .at
            .saturating_duration_since(self.last.at.max(self.start));
        let counts = Counts {
            at_ns: sums.at.saturating_duration_since(self.start).as_nanos() as u64,
            duration_ns: duration.as_nanos() as u64,
            counts: sums.counts(Some(&self.last)),
        };
        observer.counts(&counts);
        *stat.intervals.get_or_insert(0) += 1;
        self.last = sums;
        Ok(())
    }
}

/// Returns the running processes that are counted; empty for a command, and for the whole system.
fn targets(whom: &StatWhom) -> Result<Vec<Attached>, AttachError> {
    match whom {
        StatWhom::Pids(pids) => pids.iter().map(|pid| Attached::to(*pid)).collect(),
        _ => Ok(Vec::new()),
    }
}

/// Returns the session's events: the counts, unscaled.
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

fn words(request: &StatRequest<'_>) -> Vec<String> {
    let words = request.command.iter().flatten();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn whom(request: &StatRequest<'_>) -> String {
    match &request.whom {
        StatWhom::All => "'system wide'".into(),
        StatWhom::Command => format!("'{}'", words(request).join(" ")),
        StatWhom::Pids(pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("process id '{}'", pids.join(","))
        }
    }
}
