//! Events over all processes, and their price.

use std::collections::BTreeMap;

use tiptoe_event::{Cost, Histogram, Reading, Via};

use crate::calibrate::UnitCosts;
use crate::planner::Follow;
use crate::tracee::{Reads, Source, Tracee};

/// One event over all processes.
pub struct Total {
    pub reading: Reading,
    pub via: Via,
    pub trap: bool,
    pub follow: Follow,
    pub times: Option<Box<Histogram>>,
    pub names: Vec<String>,
    pub parts: BTreeMap<String, u64>,
}

impl Total {
    pub fn notes(&self) -> Vec<String> {
        let trap = self.trap.then(|| "trap: no jump fits there".to_owned());
        trap.into_iter().collect()
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
        for (index, counter) in tracee.counters.iter().enumerate() {
            let reading = reads.readings.get(index).copied().unwrap_or_default();
            let (via, trap, follow) = match counter.source {
                Source::Agent { trap, follow, .. } => (Via::Agent, trap, follow),
                Source::Kernel(_) => (Via::Kernel, false, Follow::No),
            };
            let total = self
                .by_name
                .entry(counter.event.clone())
                .or_insert_with(|| {
                    self.order.push(counter.event.clone());
                    let (names, parts) = (counter.names.clone(), BTreeMap::new());
                    Total {
                        reading: Reading::default(),
                        via,
                        trap,
                        follow,
                        times: None,
                        names,
                        parts,
                    }
                });
            // Two places of one name count together, over the same time.
            let time = |a: u64, b: u64| a.max(b);
            total.reading = Reading {
                time_enabled_ns: time(total.reading.time_enabled_ns, reading.time_enabled_ns),
                time_running_ns: time(total.reading.time_running_ns, reading.time_running_ns),
                ..total.reading.plus(reading)
            };
            if let Some(Some(times)) = reads.times.get(index) {
                total.times.get_or_insert_default().merge(times);
            }
            for (key, values) in &reads.parts {
                let count = values.get(index).copied().unwrap_or(0);
                if count > 0 {
                    *total.parts.entry(key.clone()).or_insert(0) += count;
                }
            }
        }
    }

    /// Takes away what was counted before.
    pub fn since(&mut self, before: &Events) {
        for (name, earlier) in &before.by_name {
            let Some(total) = self.by_name.get_mut(name) else {
                continue;
            };
            total.reading = total.reading.since(earlier.reading);
            if let (Some(times), Some(earlier)) = (&mut total.times, &earlier.times) {
                **times = times.clone().since(earlier);
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
            .map(|total| total.reading.hits())
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

    fn of_each(&self, follow: Follow) -> Cost {
        match follow {
            Follow::No => self.costs.count,
            Follow::Returns => self.costs.followed,
            Follow::Times => self.costs.timed,
        }
    }

    pub fn of(&self, total: &Total, extra_ns: f64) -> Cost {
        let unit = match (total.via, total.trap) {
            (Via::Kernel, _) => return self.costs.kernel,
            (_, true) => return self.costs.trap,
            _ if self.filtered => self.costs.count.plus(self.costs.filtered),
            _ => self.of_each(total.follow),
        };
        unit.plus(Cost {
            ns: extra_ns,
            low_ns: extra_ns,
            high_ns: extra_ns,
        })
    }
}
