//! Several instruments in one run, as one [`Instrument`].
//!
//! Each instrument gets the same turns in the same targets. The run ends when the first of them has nothing left to
//! count. Its cost is the sum of theirs.

use std::time::Duration;

use tiptoe_session::{Cost, CountPart, Session};

use super::{Instrument, IntervalCounts, Next, RunClock, RunEnd, Span, Targets, Turn};
use crate::error::Error;
use crate::request::Progress;

/// The instruments of a run, at least one. The first that serves an agent must leave the targets.
pub(crate) struct Several<'a>(pub(crate) Vec<&'a mut dyn Instrument>);

impl Instrument for Several<'_> {
    /// Returns the clock of the instrument that began first.
    fn start(&mut self, at: &mut Targets) -> Result<RunClock, Error> {
        let mut first = None;
        for one in &mut self.0 {
            let clock = one.start(at)?;
            first = Some(first.map_or(clock, |first: RunClock| first.earlier(clock)));
        }
        first.ok_or(Error::NothingCounted)
    }

    fn poll(&mut self, turn: &mut Turn<'_>) -> Result<Next, Error> {
        let mut first = Duration::MAX;
        for one in &mut self.0 {
            match one.poll(turn)? {
                Next::Within(time) => first = first.min(time),
                Next::Ended => return Ok(Next::Ended),
            }
        }
        Ok(Next::Within(first))
    }

    fn count_interval(&mut self, span: Span, turn: &mut Turn<'_>) -> Result<IntervalCounts, Error> {
        let mut all: Option<Vec<CountPart>> = None;
        for one in &mut self.0 {
            let counts = one.count_interval(span.clone(), turn)?;
            all = match (all, counts) {
                (Some(all), Some(counts)) => Some([all, counts].concat()),
                (all, counts) => all.or(counts),
            };
        }
        Ok(all)
    }

    fn reports_rest(&self) -> bool {
        self.0.iter().any(|one| one.reports_rest())
    }

    fn progress(&mut self, cpu_ns: u64, turn: &mut Turn<'_>) -> Result<Option<Progress>, Error> {
        let mut all: Option<Progress> = None;
        for one in &mut self.0 {
            let progress = one.progress(cpu_ns, turn)?;
            all = match (all, progress) {
                (Some(all), Some(progress)) => Some(all.plus(progress)),
                (all, progress) => all.or(progress),
            };
        }
        Ok(all)
    }

    fn stop(&mut self, turn: &mut Turn<'_>) -> Result<Duration, Error> {
        // All must stop, even if one fails. The first one stops last, because it makes the agent leave.
        let stopped = self.0.iter_mut().rev().map(|one| one.stop(turn));
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
        for one in &mut self.0 {
            let cost = one.section(ran, at, session)?;
            all = Some(match all {
                Some(all) => all.plus(cost),
                None => cost,
            });
        }
        Ok(all.unwrap_or_default())
    }
}
