//! What has been counted in one process.

use std::collections::BTreeMap;

use tiptoe_event::{Histogram, Reading};
use tiptoe_wire::calls::words;

use super::{Counter, Source, Tracee, calls};
use crate::counts::{self, Counts};
use crate::planner::Follow;
use crate::request::{By, Error};

/// What has been counted in one process.
pub struct Reads {
    /// One reading for each counter.
    pub readings: Vec<Reading>,
    /// And for each gate.
    pub gates: Vec<Reading>,
    /// For each counter, how long its calls took, where they are timed.
    pub times: Vec<Option<Box<Histogram>>>,
    /// For each thread or name, and counter, its part.
    pub parts: BTreeMap<String, Vec<u64>>,
}

impl Tracee {
    /// Reads all counters.
    pub fn read(&self, by: Option<By>) -> Result<Reads, Error> {
        let failed = |error: std::io::Error| Error::new(format!("cannot read the counts: {error}"));
        let counts = match &self.link {
            Some(link) => {
                let maxima = self.longest();
                counts::read(link.data_file(), link.geometry(), by, &maxima).map_err(failed)?
            }
            None => Counts::default(),
        };
        let kernel = match &self.kernel {
            Some(set) => set.read().map_err(|error| Error::new(error.to_string()))?,
            None => Vec::new(),
        };
        let enabled = self.since.elapsed().as_nanos() as u64;
        let meters = self.meters.borrow();
        let reading = |counter: &Counter| match counter.source {
            Source::Agent { slot, follow, .. } => Reading {
                time_enabled_ns: enabled,
                time_running_ns: meters.ran_ns(slot).unwrap_or(enabled),
                ..calls::reading(&counts.totals, slot, follow)
            },
            Source::Kernel(place) => kernel.get(place.index).copied().unwrap_or_default(),
        };
        let over = self.follows() && (self.is_gone() || self.has_execed());
        let reading = |counter: &Counter| match reading(counter) {
            reading if over => calls::at_the_end(reading),
            reading => reading,
        };
        let part = |values: &Vec<u64>| {
            let value = |counter: &Counter| match counter.source {
                Source::Agent { slot, follow, .. } => calls::reading(values, slot, follow).count,
                Source::Kernel(_) => 0,
            };
            self.counters.iter().map(value).collect()
        };
        let times = |counter: &Counter| match counter.source {
            Source::Agent { slot, follow, .. } => calls::histogram(&counts.totals, slot, follow),
            Source::Kernel(_) => None,
        };
        Ok(Reads {
            times: self.counters.iter().map(times).collect(),
            readings: self.counters.iter().map(reading).collect(),
            gates: self.gates.iter().map(reading).collect(),
            parts: counts
                .parts
                .iter()
                .map(|(key, values)| (key.clone(), part(values)))
                .collect(),
        })
    }

    /// Slots of which the greatest counts.
    fn longest(&self) -> Vec<u32> {
        let slots = self
            .counters
            .iter()
            .filter_map(|counter| match counter.source {
                Source::Agent {
                    slot,
                    follow: Follow::Times,
                    ..
                } => Some(slot + words::LONGEST),
                _ => None,
            });
        slots.collect()
    }
}
