//! The only loop of a run: lets an [`Instrument`] count until its targets end, the duration is over, or the user stops
//! it.
//!
//! All times of a run are on one clock, CLOCK_MONOTONIC ([`RunClock`]), and since counting began.
//!
//! The loop waits at once for all that can wake it: the ends of processes, signals, the instrument's next turn, the
//! interval and the duration. INVARIANT: no wake-up is lost, because whatever is checked before a wait also ends that
//! wait if it happens later. A signal handler sets `stop` before it writes to the pipe that the wait reads, and a
//! process's pidfd is readable from the process's end on.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tiptoe_attach::Attached;
use tiptoe_attach::phase::Phase;
use tiptoe_attach::ready::Ready;
use tiptoe_price::own::OwnUse;
use tiptoe_session::Session;
use tiptoe_sys::raw::monotonic_ns;

use crate::request::{Error, Observer, Outcome};

mod command;
mod targets;
mod timers;

pub(crate) use command::wait_for_end;
pub(crate) use targets::{Targets, session_target};
pub(crate) use timers::Timers;

/// The longest pause between two turns. In each turn the observer is asked whether it wants the counts so far, and
/// another thread may set `stop` without a wake-up.
const LOOK: Duration = Duration::from_millis(100);
/// The shortest pause, even for shorter intervals.
const SHORTEST: Duration = Duration::from_micros(100);

/// When a run counts, and what ends it.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How long to wait before counting.
    pub delay: Option<Duration>,
    /// How long to count; if `None`, until the target ends or `stop` is set.
    pub duration: Option<Duration>,
    /// The interval at which the observer gets the new counts.
    pub interval: Option<Duration>,
    /// Set by the caller (on Ctrl-C) to end the run and get the results.
    pub stop: Arc<AtomicBool>,
    /// Set by the caller, besides `stop`, to the signal that set it: a started command gets it,
    /// which would otherwise continue after its trace, and an attach that it broke off ends with it.
    pub hand_on: Arc<AtomicUsize>,
    /// Is notified when counting has begun.
    pub ready: Ready,
}

/// A part of a run.
pub(crate) type Span = Range<Duration>;

/// When the loop calls an instrument again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// After this time at the latest.
    Within(Duration),
    /// Never, because there is nothing left to count.
    Ended,
}

/// What an instrument gets in a turn.
pub(crate) struct Turn<'a> {
    pub(crate) at: &'a Targets,
    pub(crate) clock: RunClock,
    pub(crate) observer: &'a mut dyn Observer,
}

/// One way to count. The loop calls its functions, which must never wait.
pub(crate) trait Instrument {
    /// Begins to count; returns the run's clock. No time that the instrument reports may be earlier than the clock's
    /// start. Unless there was a delay, commands among the targets have not called exec yet.
    fn start(&mut self, targets: &Targets) -> Result<RunClock, Error>;

    /// Takes a turn: reads what would be lost otherwise, and reports what the user must see now.
    fn poll(&mut self, turn: Turn<'_>) -> Result<Next, Error>;

    /// Reports the counts of an interval. Does nothing by default.
    fn report_interval(&mut self, _span: Span, _to: &mut dyn Observer) -> Result<(), Error> {
        Ok(())
    }

    /// Returns whether the time from the last interval to the end is an interval, too, so that all of them sum to the
    /// total.
    fn reports_rest(&self) -> bool {
        false
    }

    /// Reports the counts so far in targets that have used `cpu_ns`. Does nothing by default.
    fn report_progress(&mut self, _cpu_ns: u64, _to: &mut dyn Observer) -> Result<(), Error> {
        Ok(())
    }

    /// Ends counting. Returns for how long it counted.
    fn stop(&mut self, targets: &Targets, clock: RunClock) -> Result<Duration, Error>;
}

/// The clock of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClock {
    start_ns: u64,
}

impl RunClock {
    pub(crate) fn start() -> RunClock {
        let start_ns = monotonic_ns();
        RunClock { start_ns }
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.until(monotonic_ns())
    }

    /// Returns the time from the start to a time of CLOCK_MONOTONIC; zero if that is earlier.
    pub(crate) fn until(self, at_ns: u64) -> Duration {
        Duration::from_nanos(at_ns.saturating_sub(self.start_ns))
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnd {
    pub(crate) clock: RunClock,
    /// For how long the instrument counted.
    pub(crate) elapsed: Duration,
    /// Whether the run ended because nothing was left to count.
    pub(crate) has_ended: bool,
}

/// Counts from now, or from the end of the delay, until the run ends. Adds the run's beginning, its duration and the
/// CPU time to the session.
pub(crate) fn drive(
    instrument: &mut dyn Instrument,
    options: &RunOptions,
    targets: &mut Targets,
    session: &mut Session,
    observer: &mut dyn Observer,
) -> Result<RunEnd, Error> {
    if let Some(time) = options.delay {
        // With a delay, the command begins before the counting.
        targets.release()?;
        pause(time, &options.stop, targets);
    }
    let clock = instrument.start(targets)?;
    targets.counted().for_each(Attached::mark);
    let started_at = SystemTime::now() - clock.elapsed();
    options.ready.notify(&targets.names());
    targets.release()?;
    let mut timers = Timers::new(options.interval, options.duration);
    let mut ends = targets.ends();
    let has_ended = loop {
        // Must be checked before the poll, so that the last poll reads all of an ended command.
        let have_ended = targets.have_ended();
        let next = instrument.poll(Turn {
            at: targets,
            clock,
            observer,
        })?;
        let elapsed = clock.elapsed();
        let is_stopped = is_set(&options.stop) || timers.is_over(elapsed);
        let next = match next {
            Next::Within(time) if !is_stopped && !have_ended => time.min(LOOK),
            _ => break !is_stopped,
        };
        if let Some(span) = timers.take_interval(elapsed) {
            instrument.report_interval(span, observer)?;
        }
        if observer.wants_progress() {
            instrument.report_progress(targets.cpu_ns(elapsed), observer)?;
        }
        // The observer may have set `stop`.
        if !is_set(&options.stop) {
            let next = next.min(timers.pause(clock.elapsed()));
            ends.wait(next.max(SHORTEST));
        }
    };
    Phase::Ending.begin();
    let elapsed = instrument.stop(targets, clock)?;
    let last = match instrument.reports_rest() {
        true => timers.rest(elapsed),
        false => timers.take_interval(elapsed),
    };
    if let Some(span) = last {
        instrument.report_interval(span, observer)?;
    }
    if session.duration_ns == 0 {
        session.started_unix_ns = unix_ns(started_at);
    }
    session.duration_ns += elapsed.as_nanos() as u64;
    session.cpu_ns += targets.cpu_ns(elapsed);
    session.cpus = targets.cpus();
    Ok(RunEnd {
        clock,
        elapsed,
        has_ended,
    })
}

/// Returns a time since the Unix epoch.
pub(crate) fn unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Returns the outcome of a run, with tiptoe's own use.
pub(crate) fn outcome(mut session: Session, exit_status: Option<i32>, own: &OwnUse) -> Outcome {
    own.report(&mut session);
    Outcome {
        session,
        exit_status,
    }
}

/// Waits before counting. Returns early if nothing is left to count or `stop` is set.
pub(crate) fn pause(time: Duration, stop: &AtomicBool, targets: &Targets) {
    let clock = RunClock::start();
    let mut ends = targets.ends();
    while !is_set(stop) && !targets.have_ended() {
        match time.checked_sub(clock.elapsed()) {
            Some(left) if !left.is_zero() => {
                ends.wait(left.min(LOOK));
            }
            _ => return,
        }
    }
}

fn is_set(stop: &AtomicBool) -> bool {
    // Relaxed: the flag orders no other data.
    stop.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
