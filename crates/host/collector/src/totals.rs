//! Events over all processes, and their price.

use std::collections::BTreeMap;

use tiptoe_event::{Cost, Reading, Via};

use crate::calibrate::UnitCosts;
use crate::tracee::{Reads, Source, Tracee};

/// One event over all processes.
pub struct Total {
    pub reading: Reading,
    pub via: Via,
    pub trap: bool,
    pub names: Vec<String>,
    /// What is known of it otherwise.
    pub remarks: Vec<String>,
    /// How many functions of one process bear its name.
    pub bearers: u64,
    pub parts: BTreeMap<String, u64>,
}

impl Total {
    pub fn notes(&self) -> Vec<String> {
        let several = || format!("{} functions of this name", self.bearers);
        let several = (self.bearers > 1).then(several);
        let trap = self.trap.then(|| "trap: no jump fits there".to_owned());
        let remarks = self.remarks.iter().cloned();
        several.into_iter().chain(remarks).chain(trap).collect()
    }
}

/// All events over all processes.
#[derive(Default)]
pub struct Events {
    pub order: Vec<String>,
    pub by_name: BTreeMap<String, Total>,
}

impl Events {
    pub fn add(&mut self, tracee: &Tracee, reads: Reads) {
        let mut bearers: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, counter) in tracee.counters.iter().enumerate() {
            let reading = reads.readings.get(index).copied().unwrap_or_default();
            let (via, trap) = match counter.source {
                Source::Agent { trap, .. } => (Via::Agent, trap),
                Source::Kernel(_) => (Via::Kernel, false),
            };
            let total = self
                .by_name
                .entry(counter.event.clone())
                .or_insert_with(|| {
                    self.order.push(counter.event.clone());
                    Total {
                        reading: Reading::default(),
                        via,
                        trap,
                        names: counter.names.clone(),
                        remarks: Vec::new(),
                        bearers: 0,
                        parts: BTreeMap::new(),
                    }
                });
            let here = bearers.entry(&counter.event).or_insert(0);
            *here += 1;
            total.bearers = total.bearers.max(*here);
            let fresh = counter.notes.iter();
            let fresh = fresh.filter(|note| !total.remarks.contains(note));
            let fresh: Vec<String> = fresh.cloned().collect();
            total.remarks.extend(fresh);
            // Two places of one name count together, over the same time.
            let time = |a: u64, b: u64| a.max(b);
            total.reading = Reading {
                time_enabled_ns: time(total.reading.time_enabled_ns, reading.time_enabled_ns),
                time_running_ns: time(total.reading.time_running_ns, reading.time_running_ns),
                ..total.reading.plus(reading)
            };
            for (key, values) in &reads.parts {
                let count = values.get(index).copied().unwrap_or(0);
                if count > 0 {
                    *total.parts.entry(key.clone()).or_insert(0) += count;
                }
            }
        }
    }

    pub fn readings(&self) -> BTreeMap<String, Reading> {
        self.by_name
            .iter()
            .map(|(name, total)| (name.clone(), total.reading))
            .collect()
    }

    /// How many sites make 99% of all hits.
    pub fn hot_sites(&self) -> usize {
        let mut counts: Vec<u64> = self
            .by_name
            .values()
            .map(|total| total.reading.count)
            .collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let enough = counts.iter().sum::<u64>() as f64 * 0.99;
        let mut sum = 0.0;
        counts
            .iter()
            .take_while(|count| {
                let more = sum < enough;
                sum += **count as f64;
                more
            })
            .count()
    }
}

/// What a hit of each kind costs.
pub struct Prices {
    pub costs: UnitCosts,
    pub filtered: bool,
}

impl Prices {
    /// What a hit that the filter rejects costs, where there is a filter.
    pub fn of_rejected(&self, events: &Events) -> Option<Cost> {
        let traps_only = events.by_name.values().all(|total| total.trap);
        let cost = if traps_only {
            self.costs.trap
        } else {
            self.costs.filtered
        };
        self.filtered.then_some(cost)
    }

    pub fn of(&self, total: &Total, extra_ns: f64) -> Cost {
        let unit = match (total.via, total.trap) {
            (Via::Kernel, _) => return self.costs.kernel,
            (_, true) => return self.costs.trap,
            _ if self.filtered => self.costs.count.plus(self.costs.filtered),
            _ => self.costs.count,
        };
        unit.plus(Cost {
            ns: extra_ns,
            low_ns: extra_ns,
            high_ns: extra_ns,
        })
    }
}
