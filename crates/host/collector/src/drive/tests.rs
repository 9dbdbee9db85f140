use std::ffi::OsString;
use std::sync::Arc;

mod new_instrument;

use super::*;
use tiptoe_attach::Attached;
use tiptoe_session::{Call, Interval};

#[derive(Default)]
struct Turns {
    polls: u64,
    early_polls: u64,
    counts_since_ns: u64,
    did: Vec<&'static str>,
    intervals: Vec<Span>,
    reports_rest: bool,
    ends: bool,
    fails: bool,
    /// A flag that the first turn sets, as a signal would.
    stops: Option<Arc<AtomicBool>>,
}

impl Instrument for Turns {
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        self.did.push("start");
        let clock = at.start_clock();
        self.counts_since_ns = clock.start_ns;
        Ok(clock)
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> Result<Next, Error> {
        assert_eq!(turn.is_delay, self.did.is_empty());
        if turn.is_delay {
            assert!(!turn.at.counted().any(Attached::is_held));
            self.early_polls += 1;
            return Ok(Next::Within(Duration::MAX));
        }
        self.polls += 1;
        if self.fails {
            return Err(Error::NothingCounted);
        }
        if let Some(stop) = self.stops.take() {
            stop.store(true, Ordering::Relaxed);
        }
        match self.ends {
            true => Ok(Next::Ended),
            false => Ok(Next::Within(Duration::MAX)),
        }
    }

    fn count_interval(&mut self, span: Span, _: &mut Turn<'_>) -> Result<IntervalCounts, Error> {
        self.intervals.push(span);
        Ok(Some(Vec::new()))
    }

    fn reports_rest(&self) -> bool {
        self.reports_rest
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        self.did.push("stop");
        Ok(turn.clock.elapsed())
    }

    fn section(&mut self, _: &RunEnd, _: &Targets, _: &mut Session) -> Result<Cost, Error> {
        self.did.push("section");
        Ok(Cost::default())
    }
}

struct Silent;

impl Observer for Silent {
    fn interval(&mut self, _interval: &Interval) {}
    fn calls(&mut self, _calls: &[Call<'_>]) {}
    fn note(&mut self, _note: &tiptoe_session::Note) {}
}

fn command(words: &[&str]) -> Targets {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    Targets::of(vec![Attached::start_alone(&words).expect("a process")])
}

fn run(turns: &mut Turns, options: &RunOptions, targets: &mut Targets) -> RunEnd {
    let mut session = Session::default();
    let ran = drive(turns, options, targets, &mut session, &mut Silent).expect("nothing fails");
    assert_eq!(turns.did, ["start", "stop"]);
    assert_eq!(ran.clock.start_ns, turns.counts_since_ns);
    assert_eq!(u128::from(session.duration_ns), ran.elapsed.as_nanos());
    assert_eq!(session.cpus.is_some(), targets.counted().next().is_none());
    assert_eq!(session.intervals.len(), turns.intervals.len());
    let is_early = session.notes.contains(&ProcessNote::EndedInDelay.into());
    let options_say_so = options.delay == Some(Duration::MAX);
    assert_eq!(is_early, options_say_so, "no other run ends in its delay");
    ran
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_command_that_exits_at_once_ends_the_run() {
    let mut turns = Turns::default();
    let ran = run(&mut turns, &RunOptions::default(), &mut command(&["true"]));
    assert!(ran.has_ended && turns.polls > 0);
}

#[test]
fn a_process_that_ends_before_the_first_wait_ends_the_run() {
    let mut child = std::process::Command::new("true").spawn().expect("true");
    let mut targets = Targets::running(&[child.id()]).expect("it is not reaped");
    child.wait().expect("its end");
    assert!(run(&mut Turns::default(), &RunOptions::default(), &mut targets).has_ended);
}

#[test]
fn a_stop_before_the_start_ends_the_run_and_its_delay() {
    let options = RunOptions {
        delay: Some(Duration::MAX),
        ..RunOptions::default()
    };
    options.stop.store(true, Ordering::Relaxed);
    let mut turns = Turns::default();
    assert!(!run(&mut turns, &options, &mut Targets::system()).has_ended);
    assert_eq!(turns.polls, 1);
}

#[test]
fn the_end_of_the_command_ends_the_delay() {
    let options = RunOptions {
        delay: Some(Duration::MAX),
        ..RunOptions::default()
    };
    assert!(run(&mut Turns::default(), &options, &mut command(&["true"])).has_ended);
}

#[test]
fn others_are_counted_until_the_command_ends() {
    let mut child = std::process::Command::new("true").spawn().expect("true");
    let counted = Targets::running(&[child.id()]).expect("it is not reaped");
    child.wait().expect("its end");
    let mut targets = Targets {
        meanwhile: command(&["sleep", "0.1"]).alone.pop(),
        ..counted
    };
    let mut turns = Turns::default();
    assert!(run(&mut turns, &RunOptions::default(), &mut targets).has_ended);
    assert!(turns.polls > 1, "the ended process did not end it");
}

#[test]
fn one_ended_process_is_no_busy_loop() {
    let mut child = std::process::Command::new("true").spawn().expect("true");
    let mut targets = Targets::running(&[child.id(), std::process::id()]).expect("both exist");
    let options = RunOptions {
        duration: Some(ms(500)),
        ..RunOptions::default()
    };
    let mut turns = Turns::default();
    assert!(!run(&mut turns, &options, &mut targets).has_ended);
    assert!(turns.polls < 100, "{} turns", turns.polls);
    child.wait().expect("its end");
}

#[test]
fn intervals_follow_each_other_and_the_rest_is_one_if_wanted() {
    for reports_rest in [false, true] {
        let options = RunOptions {
            interval: Some(ms(40)),
            duration: Some(ms(100)),
            ..RunOptions::default()
        };
        let mut turns = Turns {
            reports_rest,
            ..Turns::default()
        };
        let ran = run(&mut turns, &options, &mut Targets::system());
        let mut last = Duration::ZERO;
        for interval in &turns.intervals {
            assert_eq!(interval.start, last, "{:?}", turns.intervals);
            last = interval.end;
        }
        assert!(last >= ms(80) && ran.elapsed >= ms(100));
        assert!(
            !reports_rest || last == ran.elapsed,
            "{:?}",
            turns.intervals
        );
    }
}

#[test]
fn an_instrument_without_anything_left_to_count_ends_the_run() {
    let mut turns = Turns {
        ends: true,
        ..Turns::default()
    };
    let ran = run(&mut turns, &RunOptions::default(), &mut Targets::system());
    assert!(ran.has_ended && turns.polls == 1);
}

#[test]
fn a_stop_during_a_turn_is_seen_before_the_next_wait() {
    let options = RunOptions::default();
    let mut turns = Turns {
        stops: Some(Arc::clone(&options.stop)),
        ..Turns::default()
    };
    assert!(!run(&mut turns, &options, &mut Targets::system()).has_ended);
    assert_eq!(turns.polls, 1);
}

#[test]
fn a_failed_turn_left_the_targets_to_the_instrument() {
    let mut turns = Turns {
        fails: true,
        ..Turns::default()
    };
    let options = RunOptions::default();
    let mut session = Session::default();
    let mut targets = Targets::system();
    let ran = drive(
        &mut turns,
        &options,
        &mut targets,
        &mut session,
        &mut Silent,
    );
    assert!(ran.is_err() && session == Session::default());
    assert_eq!(turns.did, ["start", "stop"]);
}

#[test]
fn an_instrument_has_turns_in_the_delay() {
    let options = RunOptions {
        delay: Some(ms(250)),
        ..RunOptions::default()
    };
    let mut turns = Turns::default();
    let ran = run(&mut turns, &options, &mut command(&["sleep", "0.5"]));
    assert!(ran.has_ended && turns.early_polls > 1);
}

#[test]
fn a_run_lasts_until_the_last_of_its_instruments_has_nothing_left_to_count() {
    let mut ending = Turns {
        ends: true,
        ..Turns::default()
    };
    let mut other = Turns::default();
    let options = RunOptions {
        duration: Some(ms(250)),
        ..RunOptions::default()
    };
    let mut both = Several::new(vec![&mut ending, &mut other]);
    let (mut session, mut at) = (Session::default(), Targets::system());
    let ran = drive(&mut both, &options, &mut at, &mut session, &mut Silent);
    assert!(!ran.expect("nothing fails").has_ended);
    assert_eq!(ending.polls, 1);
    assert!(other.polls > 1, "{}", other.polls);
}
