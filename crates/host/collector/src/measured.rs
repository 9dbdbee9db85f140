//! The measurements of an event, or of a part of it.

use tiptoe_event::{Histogram, Reading};
use tiptoe_session::{CountPart, Latency};

#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub reading: Reading,
    pub times: Option<Box<Histogram>>,
}

impl Measured {
    /// Adds counts of the same period.
    pub fn add(&mut self, other: &Measured) {
        let (one, more) = (self.reading, other.reading);
        self.reading = Reading {
            time_enabled_ns: one.time_enabled_ns.max(more.time_enabled_ns),
            time_running_ns: one.time_running_ns.max(more.time_running_ns),
            ..one.plus(more)
        };
        if let Some(times) = &other.times {
            self.times.get_or_insert_default().merge(times);
        }
    }

    /// A timed call that was in progress at the start still counts, because its end and its duration are counted.
    pub fn since(&mut self, earlier: &Measured) {
        self.reading = self.reading.since(earlier.reading);
        if let (Some(_), Some(ends)) = (self.reading.latency, earlier.reading.ends) {
            self.reading.count = self.reading.count.wrapping_add(ends.inside);
        }
        if let (Some(times), Some(earlier)) = (&mut self.times, &earlier.times) {
            **times = times.clone().since(earlier);
        }
    }

    pub fn part(&self, key: &str) -> CountPart {
        let mut part = CountPart::new(key, self.reading.count);
        if let Some(ends) = self.reading.ends {
            part = part.with_ends(ends.into());
        }
        if let (Some(latency), Some(times)) = (self.reading.latency, &self.times) {
            part = part.with_latency(Latency::new(latency, times));
        }
        part
    }
}
