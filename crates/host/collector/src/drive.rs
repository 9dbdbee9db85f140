//! The only loop of a run. It calls an [`Instrument`] until the targets end, the duration is over, or the
//! user stops the run. All times are measured from the beginning of counting, by CLOCK_MONOTONIC
//! ([`RunClock`]).
//!
//! A wait of the loop ends when a process ends, a signal arrives, or an agent (tiptoe's library in a target) rings;
//! and when the instrument's next call, an interval's end or the run's end is due. INVARIANT: no wake-up is lost.
//! Every event is checked before a wait. An event after the check ends the wait. The exception is a wait for
//! doorbells (futexes that agents wake): no signal and no end of a process ends it, but it lasts at most [`TICK`]. A
//! signal handler sets `stop` before it writes to the pipe that the wait reads. A pidfd stays readable after its
//! process has ended.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tiptoe_attach::phase::Phase;
use tiptoe_price::own::OwnUse;
use tiptoe_session::{Cost, CountPart, Interval, ProcessNote, Session};

use crate::clock::{RunClock, TICK};
use crate::error::Error;
use crate::request::{Observer, Outcome, Progress, RunOptions};
use crate::words::session_target;

mod command;
mod several;
mod targets;
mod timers;
mod wakes;

pub(crate) use command::wait_for_end;
pub(crate) use several::Several;
pub(crate) use targets::Targets;
use timers::Timers;
use wakes::Wakes;

/// The longest wait of the loop. A thread that sets `stop` ends no wait, so the loop must read the flag this often.
const LOOK: Duration = Duration::from_millis(100);
const SHORTEST: Duration = Duration::from_micros(100);

pub(crate) type Span = Range<Duration>;

/// The counts of an interval; `None` if the instrument reports them itself.
pub(crate) type IntervalCounts = Option<Vec<CountPart>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Within(Duration),
    Ended,
}

pub(crate) struct Turn<'a> {
    pub(crate) at: &'a mut Targets,
    /// The clock of the run; before counting begins, the clock of the delay.
    pub(crate) clock: RunClock,
    pub(crate) is_delay: bool,
    pub(crate) observer: &'a mut dyn Observer,
}

/// One way to count. Its functions must never wait, because the loop would serve nothing else during the
/// wait.
pub(crate) trait Instrument {
    /// Begins to count, and returns the run's clock ([`Targets::start_clock`]). No reported time may be earlier than
    /// the clock's start. A command among the targets does not run yet, unless there was a delay.
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error>;

    /// Reads data that would be lost later, and reports what the user must see during the run. The loop calls
    /// this during the delay too, because a command already runs then.
    fn poll(&mut self, turn: &mut Turn<'_>) -> Result<Next, Error>;

    fn count_interval(
        &mut self,
        _span: Span,
        _turn: &mut Turn<'_>,
    ) -> Result<IntervalCounts, Error> {
        Ok(None)
    }

    /// Returns whether the last interval is reported even if it is shorter than the others. If so, the
    /// intervals sum to the total.
    fn reports_rest(&self) -> bool {
        false
    }

    /// `cpu_ns` is the targets' CPU time so far.
    fn progress(&mut self, _cpu_ns: u64, _turn: &mut Turn<'_>) -> Result<Option<Progress>, Error> {
        Ok(None)
    }

    /// Ends counting, detaches from the targets, and returns how long the instrument counted. The loop calls
    /// this even after a failure, because nothing of tiptoe may stay in the targets.
    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error>;

    /// Adds the counts to the session.
    fn section(&mut self, ran: &RunEnd, at: &Targets, session: &mut Session)
    -> Result<Cost, Error>;
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunEnd {
    pub(crate) clock: RunClock,
    pub(crate) elapsed: Duration,
    pub(crate) has_ended: bool,
}

/// Runs an instrument, makes the session (the run's results), and waits for the end of a started command.
/// `own` must have begun before the attach, so that tiptoe's own CPU time includes the attach.
pub(crate) fn run(
    instrument: &mut dyn Instrument,
    options: &RunOptions,
    targets: &mut Targets,
    own: &OwnUse,
    observer: &mut dyn Observer,
) -> Result<Outcome, Error> {
    let first = targets.counted().next();
    let command = first.map(|target| target.command.clone());
    let mut session = Session::new(command.unwrap_or_default());
    let ran = drive(instrument, options, targets, &mut session, observer)?;
    session.targets = targets.counted().map(session_target).collect();
    session.cost = instrument.section(&ran, targets, &mut session)?;
    let (processes, notes) = (targets.iter_mut(), &mut session.notes);
    let exit_status = wait_for_end(processes, &options.hand_on, observer, notes);
    own.report(&mut session);
    Ok(Outcome {
        session,
        exit_status,
    })
}

pub(crate) fn drive(
    instrument: &mut dyn Instrument,
    options: &RunOptions,
    targets: &mut Targets,
    session: &mut Session,
    observer: &mut dyn Observer,
) -> Result<RunEnd, Error> {
    let mut driven = Driven {
        instrument,
        options,
        turn: Turn {
            at: targets,
            clock: RunClock::start(),
            is_delay: options.delay.is_some(),
            observer,
        },
        session,
        started_at: SystemTime::now(),
        timers: Timers::new(options.interval, options.duration),
    };
    let counted = driven.count();
    Phase::Ending.begin();
    let elapsed = driven.instrument.stop(&mut driven.turn);
    let (has_ended, elapsed) = (counted?, elapsed?);
    driven.report_last_interval(elapsed)?;
    let (turn, session) = (driven.turn, driven.session);
    if session.duration_ns == 0 {
        let since = driven.started_at.duration_since(UNIX_EPOCH);
        session.started_unix_ns = since.map_or(0, |since| since.as_nanos() as u64);
    }
    session.duration_ns += elapsed.as_nanos() as u64;
    session.cpu_ns += turn.at.cpu_ns(elapsed);
    session.cpus = turn.at.cpus();
    Ok(RunEnd {
        clock: turn.clock,
        elapsed,
        has_ended,
    })
}

struct Driven<'a> {
    instrument: &'a mut dyn Instrument,
    options: &'a RunOptions,
    turn: Turn<'a>,
    session: &'a mut Session,
    started_at: SystemTime,
    timers: Timers,
}

impl Driven<'_> {
    /// Returns whether the run ended because nothing was left to count.
    fn count(&mut self) -> Result<bool, Error> {
        let mut wakes = Wakes::of(self.turn.at);
        if let Some(time) = self.options.delay {
            self.release()?;
            if !self.wait(time, &mut wakes)? {
                self.session.notes.push(ProcessNote::EndedInDelay.into());
            }
            self.turn.is_delay = false;
        }
        self.turn.clock = self.instrument.start(self.turn.at)?;
        self.started_at = SystemTime::now() - self.turn.clock.elapsed();
        if !is_set(&self.options.stop) {
            self.options.ready.notify(&self.turn.at.names());
        }
        self.release()?;
        loop {
            // The ends must be checked before the poll. Otherwise a command could end after the last poll, and its
            // last hits would not be read.
            let have_ended = self.turn.at.have_ended();
            let next = self.instrument.poll(&mut self.turn)?;
            let elapsed = self.turn.clock.elapsed();
            let is_stopped = is_set(&self.options.stop) || self.timers.is_over(elapsed);
            let next = match next {
                Next::Within(time) if !is_stopped && !have_ended => time,
                _ => return Ok(!is_stopped),
            };
            if let Some(span) = self.timers.take_interval(elapsed) {
                self.report_interval(span)?;
            }
            if self.turn.observer.wants_progress() {
                let cpu_ns = self.turn.at.cpu_ns(elapsed);
                let progress = self.instrument.progress(cpu_ns, &mut self.turn)?;
                progress
                    .iter()
                    .for_each(|progress| self.turn.observer.progress(progress));
            }
            // The observer may have set `stop`.
            if !is_set(&self.options.stop) {
                let next = next.min(self.timers.pause(self.turn.clock.elapsed()));
                let next = next.min(self.turn.at.keep_cpu_times(elapsed));
                wakes.wait(self.turn.at, next.clamp(SHORTEST, LOOK));
            }
        }
    }

    /// Lets a command run that was held at its start; fails if the user has stopped the run.
    fn release(&mut self) -> Result<(), Error> {
        if self.turn.at.iter_mut().any(|target| target.is_held()) {
            if is_set(&self.options.stop) {
                return Err(Error::Interrupted);
            }
            Phase::Counting.begin();
        }
        Ok(self.turn.at.release()?)
    }

    /// Waits for `time` before counting begins. Returns false if the run is stopped or nothing is left to
    /// count.
    fn wait(&mut self, time: Duration, wakes: &mut Wakes) -> Result<bool, Error> {
        self.turn.clock = RunClock::start();
        while !is_set(&self.options.stop) && !self.turn.at.have_ended() {
            let left = time.saturating_sub(self.turn.clock.elapsed());
            if left.is_zero() {
                return Ok(true);
            }
            match self.instrument.poll(&mut self.turn)? {
                Next::Within(next) => {
                    wakes.wait(self.turn.at, left.min(next).clamp(SHORTEST, LOOK))
                }
                Next::Ended => break,
            }
        }
        Ok(false)
    }

    fn report_last_interval(&mut self, elapsed: Duration) -> Result<(), Error> {
        let last = match self.instrument.reports_rest() {
            true => self.timers.rest(elapsed),
            false => self.timers.take_interval(elapsed),
        };
        last.map_or(Ok(()), |span| self.report_interval(span))
    }

    fn report_interval(&mut self, span: Span) -> Result<(), Error> {
        let at = span.clone();
        let counts = self.instrument.count_interval(at, &mut self.turn)?;
        if let Some(counts) = counts {
            let interval = Interval {
                at_ns: span.end.as_nanos() as u64,
                duration_ns: (span.end - span.start).as_nanos() as u64,
                counts,
            };
            self.turn.observer.interval(&interval);
            self.session.intervals.push(interval);
        }
        Ok(())
    }
}

/// Waits for `time` before the attach. Returns false if `stop` is set or all targets end before `time` has
/// passed.
pub(crate) fn pause(time: Duration, stop: &AtomicBool, targets: &Targets) -> bool {
    let clock = RunClock::start();
    let mut wakes = Wakes::of(targets);
    while !is_set(stop) && !targets.have_ended() {
        let left = time.saturating_sub(clock.elapsed());
        if left.is_zero() {
            return true;
        }
        wakes.wait(targets, left.min(LOOK));
    }
    false
}

fn is_set(stop: &AtomicBool) -> bool {
    // Relaxed: the flag orders no other data.
    stop.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests;
