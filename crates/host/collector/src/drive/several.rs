//! Combines several instruments (ways to count) into one [`Instrument`]. The run ends when no instrument has anything
//! left to count.

use std::time::Duration;

use tiptoe_attach::Attached;
use tiptoe_session::{Cost, CountPart, Session};

use super::{Instrument, IntervalCounts, Next, RunClock, RunEnd, Span, Targets, Turn};
use crate::error::Error;
use crate::request::Progress;

/// An instrument that detaches an agent (tiptoe's library) must be the first.
pub(crate) struct Several<'a> {
    all: Vec<&'a mut dyn Instrument>,
    ended: Vec<bool>,
}

impl<'a> Several<'a> {
    pub(crate) fn new(all: Vec<&'a mut dyn Instrument>) -> Several<'a> {
        let ended = vec![false; all.len()];
        Several { all, ended }
    }
}

impl Instrument for Several<'_> {
    /// Returns the clock of the instrument that began first.
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        self.ended.fill(false); // a poll during the delay may have set these
        let mut first: Option<(RunClock, Vec<Duration>)> = None;
        for one in &mut self.all {
            let clock = one.start(at)?;
            let is_first = |(first, _): &(RunClock, _)| clock.is_before(*first);
            if first.as_ref().is_none_or(is_first) {
                first = Some((clock, at.counted().map(Attached::counted_from).collect()));
            }
        }
        let (clock, cpu_times) = first.ok_or(Error::NothingCounted)?;
        let targets = at.counted().zip(cpu_times);
        targets.for_each(|(target, cpu_time)| target.count_from(cpu_time));
        Ok(clock)
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> Result<Next, Error> {
        let mut first = None;
        for (one, has_ended) in self.all.iter_mut().zip(&mut self.ended) {
            if *has_ended {
                continue;
            }
            match one.poll(turn)? {
                Next::Within(time) => first = Some(first.map_or(time, |first| time.min(first))),
                Next::Ended => *has_ended = true,
            }
        }
        Ok(first.map_or(Next::Ended, Next::Within))
    }

    fn count_interval(&mut self, span: Span, turn: &mut Turn<'_>) -> Result<IntervalCounts, Error> {
        let mut all: Option<Vec<CountPart>> = None;
        for one in &mut self.all {
            let counts = one.count_interval(span.clone(), turn)?;
            all = sum(all, counts, |all, counts| [all, counts].concat());
        }
        Ok(all)
    }

    fn reports_rest(&self) -> bool {
        self.all.iter().any(|one| one.reports_rest())
    }

    fn progress(&mut self, cpu_ns: u64, turn: &mut Turn<'_>) -> Result<Option<Progress>, Error> {
        let mut all: Option<Progress> = None;
        for one in &mut self.all {
            let progress = one.progress(cpu_ns, turn)?;
            all = sum(all, progress, Progress::plus);
        }
        Ok(all)
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        // Every instrument must stop, even if another fails. The first instrument stops last, because it detaches the
        // agent, which the others may use until they stop.
        let stopped = self.all.iter_mut().rev().map(|one| one.stop(turn));
        let stopped: Vec<Result<Duration, Error>> = stopped.collect();
        let mut longest = Duration::ZERO;
        for elapsed in stopped {
            longest = longest.max(elapsed?);
        }
        Ok(longest)
    }

    fn section(
        &mut self,
        ran: &RunEnd,
        at: &Targets,
        session: &mut Session,
    ) -> Result<Cost, Error> {
        let mut all: Option<Cost> = None;
        for one in &mut self.all {
            let cost = one.section(ran, at, session)?;
            all = sum(all, Some(cost), Cost::plus);
        }
        Ok(all.unwrap_or_default())
    }
}

fn sum<T>(all: Option<T>, more: Option<T>, plus: impl FnOnce(T, T) -> T) -> Option<T> {
    match (all, more) {
        (Some(all), Some(more)) => Some(plus(all, more)),
        (all, more) => all.or(more),
    }
}
