//! Decides when intervals and the run end.

use std::time::Duration;

use super::Span;

#[derive(Debug)]
pub(crate) struct Timers {
    /// The length of an interval, and the time when the present interval ends.
    interval: Option<(Duration, Duration)>,
    last: Duration,
    duration: Option<Duration>,
}

impl Timers {
    pub(crate) fn new(interval: Option<Duration>, duration: Option<Duration>) -> Timers {
        Timers {
            interval: interval.map(|length| (length, length)),
            last: Duration::ZERO,
            duration,
        }
    }

    /// Returns the present interval if it is over, and begins the next one.
    pub(crate) fn take_interval(&mut self, elapsed: Duration) -> Option<Span> {
        let (length, end) = self.interval.as_mut()?;
        if elapsed < *end {
            return None;
        }
        // If tiptoe is late, this interval is longer, and intervals that passed meanwhile are not reported.
        *end = (*end + *length).max(elapsed);
        self.rest(elapsed)
    }

    pub(crate) fn rest(&mut self, elapsed: Duration) -> Option<Span> {
        let last = std::mem::replace(&mut self.last, elapsed);
        (self.interval.is_some() && elapsed > last).then_some(last..elapsed)
    }

    pub(crate) fn is_over(&self, elapsed: Duration) -> bool {
        self.duration.is_some_and(|duration| elapsed >= duration)
    }

    pub(crate) fn pause(&self, elapsed: Duration) -> Duration {
        let ends = [self.interval.map(|(_, end)| end), self.duration];
        let next = ends.into_iter().flatten().min();
        next.map_or(Duration::MAX, |next| next.saturating_sub(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::ops::Range;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn intervals_do_not_drift_and_missed_ones_are_not_made_up_for() {
        let mut timers = Timers::new(Some(ms(10)), Some(ms(100)));
        for (elapsed, interval, pause) in [
            (3, None, 7),
            (12, Some(0..12), 8),
            (21, Some(12..21), 9),
            (59, Some(21..59), 0),
            (60, Some(59..60), 9),
            (68, None, 1),
            (69, Some(60..69), 10),
            (95, Some(69..95), 0),
        ] {
            let interval = interval.map(|range: Range<u64>| ms(range.start)..ms(range.end));
            assert_eq!(timers.take_interval(ms(elapsed)), interval, "{elapsed}");
            assert_eq!(timers.pause(ms(elapsed)), ms(pause), "{elapsed}");
        }
        assert!(!timers.is_over(ms(99)) && timers.is_over(ms(100)));
        assert_eq!(timers.rest(ms(100)), Some(ms(95)..ms(100)));
        assert_eq!(timers.rest(ms(100)), None);
    }

    #[test]
    fn without_any_nothing_is_over() {
        let mut timers = Timers::new(None, None);
        assert_eq!(timers.take_interval(Duration::MAX), None);
        assert_eq!(
            (timers.rest(Duration::MAX), timers.pause(ms(1))),
            (None, Duration::MAX)
        );
        assert!(!timers.is_over(Duration::MAX));
    }
}
