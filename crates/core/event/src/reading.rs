//! An event's counts. A *followed* call is observed until it returns.

use crate::{Ends, Latency, Records};

/// An event's counts, in the terms of `perf_event_open(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reading {
    /// Hits: entries, or returns of a return probe.
    pub count: u64,
    /// Hits that were not counted.
    pub lost: u64,
    /// Whether the count is a lower bound, which must not be extrapolated.
    pub at_least: bool,
    /// How long the event should have counted.
    pub time_enabled_ns: u64,
    /// How long the event counted.
    pub time_running_ns: u64,
    /// How followed calls ended.
    pub ends: Option<Ends>,
    /// How long timed calls took.
    pub latency: Option<Latency>,
    /// How many calls were recorded.
    pub records: Option<Records>,
}

impl Reading {
    /// Returns the sum.
    pub fn plus(self, other: Reading) -> Reading {
        Reading {
            count: self.count.wrapping_add(other.count),
            lost: self.lost.wrapping_add(other.lost),
            at_least: self.at_least || other.at_least,
            time_enabled_ns: self.time_enabled_ns.wrapping_add(other.time_enabled_ns),
            time_running_ns: self.time_running_ns.wrapping_add(other.time_running_ns),
            ends: join(self.ends, other.ends, Ends::plus),
            latency: join(self.latency, other.latency, Latency::plus),
            records: join(self.records, other.records, Records::plus),
        }
    }

    /// Returns what was added since an earlier reading.
    pub fn since(self, earlier: Reading) -> Reading {
        Reading {
            count: self.count.wrapping_sub(earlier.count),
            lost: self.lost.wrapping_sub(earlier.lost),
            at_least: self.at_least,
            time_enabled_ns: self.time_enabled_ns.wrapping_sub(earlier.time_enabled_ns),
            time_running_ns: self.time_running_ns.wrapping_sub(earlier.time_running_ns),
            ends: join(self.ends, earlier.ends, Ends::since),
            latency: join(self.latency, earlier.latency, Latency::since),
            records: join(self.records, earlier.records, Records::since),
        }
    }

    /// Returns how often the probe ran, however the calls ended.
    pub fn hits(&self) -> u64 {
        self.ends.map_or(self.count, Ends::calls)
    }

    /// Returns the hits that were only counted, although following or recording them was requested.
    pub fn only_counted(&self) -> u64 {
        let ends = self.ends.map_or(0, |ends| ends.only_counted);
        let records = self.records.map_or(0, |records| records.only_counted);
        ends.saturating_add(records)
    }

    /// Returns whether the event counted only part of the time.
    pub fn is_partial(&self) -> bool {
        self.time_running_ns < self.time_enabled_ns
    }

    /// Returns the count, extrapolated unless it is a lower bound. `None` if the event never counted.
    pub fn scaled(&self) -> Option<u64> {
        if !self.is_partial() || self.at_least {
            return Some(self.count);
        }
        let wide = u128::from(self.count) * u128::from(self.time_enabled_ns);
        let scaled = wide.checked_div(u128::from(self.time_running_ns))?;
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

fn join<T>(one: Option<T>, other: Option<T>, both: fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_reading_is_scaled_and_an_idle_one_says_nothing() {
        let half = Reading {
            count: 10,
            lost: 0,
            time_enabled_ns: 100,
            time_running_ns: 50,
            ..Reading::default()
        };
        assert_eq!(half.scaled(), Some(20));
        let bound = Reading {
            at_least: true,
            ..half
        };
        assert_eq!(bound.scaled(), Some(10));
        assert_eq!(
            Reading {
                time_running_ns: 0,
                ..half
            }
            .scaled(),
            None
        );
        assert_eq!(
            Reading {
                time_running_ns: 100,
                ..half
            }
            .scaled(),
            Some(10)
        );
        assert_eq!(
            Reading {
                count: 3,
                ..Reading::default()
            }
            .scaled(),
            Some(3)
        );
    }

    #[test]
    fn since_undoes_plus() {
        let one = Reading {
            count: 7,
            lost: 1,
            time_enabled_ns: 9,
            time_running_ns: 8,
            ..Reading::default()
        };
        assert_eq!(one.plus(one).since(one), one);
        let ends = Ends {
            returns: 5,
            left: 1,
            only_counted: 1,
            inside: 0,
        };
        let latency = Latency {
            total_ns: 900,
            self_ns: 300,
            max_ns: 400,
        };
        let timed = Reading {
            ends: Some(ends),
            latency: Some(latency),
            ..one
        };
        assert_eq!(timed.plus(timed).since(timed), timed);
        for both in [timed.plus(one), one.plus(timed)] {
            assert_eq!((both.ends, both.latency), (Some(ends), Some(latency)));
        }
    }

    #[test]
    fn states_are_not_summed() {
        let state = |inside, max_ns| {
            let ends = Ends {
                inside,
                ..Ends::default()
            };
            let latency = Latency {
                max_ns,
                ..Latency::default()
            };
            (ends, latency)
        };
        let [earlier, later] = [state(3, 90), state(2, 100)];
        assert_eq!(later.0.since(earlier.0), later.0);
        assert_eq!(later.1.since(earlier.1), later.1);
        assert_eq!(later.0.plus(earlier.0).inside, 5);
        assert_eq!(later.1.plus(earlier.1).max_ns, 100);
    }

    #[test]
    fn a_probe_works_once_for_each_call_however_it_ended() {
        let ends = Ends {
            returns: 5,
            left: 3,
            inside: 2,
            only_counted: 1,
        };
        let returns = Reading {
            count: 5,
            ends: Some(ends),
            ..Reading::default()
        };
        assert_eq!(returns.hits(), 11);
        assert_eq!(
            Reading {
                ends: None,
                ..returns
            }
            .hits(),
            5
        );
    }
}
