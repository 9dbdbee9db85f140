//! Reads the counts of one process.

use std::collections::BTreeMap;

use tiptoe_event::Reading;
use tiptoe_session::{OTHER_VALUES, argument_key};
use tiptoe_wire::calls::words;
use tiptoe_wire::timed_values::{SETS, set};

use super::{AgentCounter, InProcess, PATIENCE, calls};
use crate::clock::RunClock;
use crate::counts::{self, Counts, SlotKinds};
use crate::error::Error;
use crate::measured::Measured;
use crate::planner::Follow;
use crate::request::Split;
use crate::scopes::{NO_ROOM, Tree};
use crate::tracee::{TracedProcess, scope_names};
use crate::values::{TimedValues, Values};

pub struct Reads {
    pub all: Vec<Measured>,
    pub gates: Vec<Measured>,
    /// The non-empty parts of each counter, by thread, name or value.
    pub parts: Vec<BTreeMap<String, Measured>>,
}

impl Reads {
    pub fn add_unsplit(&mut self, readings: Vec<Reading>) {
        let parts = readings.iter().map(|_| BTreeMap::new());
        self.parts.extend(parts);
        self.all
            .extend(readings.into_iter().map(|reading| Measured {
                reading,
                times: None,
            }));
    }
}

impl InProcess {
    /// Reads the counters before the records of calls, so that each counted record is also read.
    pub fn read(
        &self,
        process: &TracedProcess,
        by: Option<Split>,
        clock: RunClock,
    ) -> Result<Reads, Error> {
        let patches = &self.patches;
        let counts = match &process.target.link {
            Some(link) => {
                let kinds = self.slot_kinds();
                counts::read(link.data_file(), link.geometry(), by, &kinds)
                    .map_err(Error::unreadable("counts"))?
            }
            None => Counts::default(),
        };
        let keys = match by {
            Some(Split::Argument(arg)) => Some(Keys::Argument(arg)),
            Some(Split::Scope) => Some(Keys::Scopes(scope_names(process)?)),
            _ => None,
        };
        // An ended process never completes a record.
        let has_ended = process.target.has_ended();
        self.read_records(process, clock, if has_ended { 0 } else { PATIENCE });
        let rings = self.rings.borrow();
        let enabled = process.since.elapsed().as_nanos() as u64;
        let meters = self.meters.borrow();
        let unpatched = patches.slots_unpatched_elsewhere(process);
        let reading = |one: &AgentCounter| {
            let slot = one.site.slot;
            let ran = meters.ran_ns(slot);
            let reading = calls::reading(&counts.totals, slot, one.follow);
            let seen = rings.as_ref().map(|rings| rings.as_seen(slot, reading));
            Reading {
                // Hits are not counted after a trap was switched off, or in copies of code without a patch.
                at_least: ran.is_some() || unpatched.contains(&slot),
                time_enabled_ns: enabled,
                time_running_ns: ran.unwrap_or(enabled),
                ..seen.unwrap_or(reading)
            }
        };
        let over = patches.follows_calls()
            && (process.target.has_ended() || process.presence.has_execed(&process.target));
        let ended = |mut measured: Measured| {
            if over {
                measured.reading = calls::at_the_end(measured.reading);
            }
            measured
        };
        let all = |one: &AgentCounter| {
            ended(Measured {
                reading: reading(one),
                times: calls::histogram(&counts.totals, one.site.slot, one.follow),
            })
        };
        let parts = |one: &AgentCounter| {
            if let Some(keys) = &keys {
                let timed = counts.timed_values.get(&one.site.slot).into_iter();
                let timed = timed.flat_map(|values| by_timed_value(keys, values, one.follow));
                let timed = timed.map(|(key, part)| (key, ended(part)));
                let values = counts.values.get(&one.site.slot).into_iter();
                let values = values.flat_map(|v| by_value(keys, v, reading(one).count));
                return together(timed.chain(values));
            }
            let parts = counts.parts.iter();
            let parts = parts.filter_map(|(key, values)| Some((key, part(one, values)?)));
            parts
                .map(|(key, part)| (key.clone(), ended(part)))
                .collect()
        };
        Ok(Reads {
            all: patches.counters.iter().map(all).collect(),
            gates: patches.gates.iter().map(all).collect(),
            parts: patches.counters.iter().map(parts).collect(),
        })
    }

    /// Forgets the longest time of each timed function. The time of a call that returns meanwhile may be lost.
    pub fn forget_longest_calls(&self, process: &TracedProcess) -> Result<(), Error> {
        let Some(link) = &process.target.link else {
            return Ok(());
        };
        let kinds = self.slot_kinds();
        let by_value = kinds.timed_values.iter();
        let sets = by_value.flat_map(|slot| (0..SETS).map(move |number| set(*slot, number)));
        let first = kinds.timed.iter().copied().chain(sets);
        let longest: Vec<u32> = first.map(|slot| slot + words::LONGEST).collect();
        let cleared = counts::clear(link, &longest);
        cleared.map_err(Error::unreadable("counts"))
    }

    fn slot_kinds(&self) -> SlotKinds {
        let mut kinds = SlotKinds::default();
        for one in &self.patches.counters {
            let slots = match one.follow {
                Follow::Times => &mut kinds.timed,
                Follow::Values => &mut kinds.valued,
                Follow::TimedValues => &mut kinds.timed_values,
                _ => continue,
            };
            slots.push(one.site.slot);
        }
        kinds
    }
}

enum Keys {
    Argument(u8),
    Scopes(Tree),
}

impl Keys {
    fn of(&self, value: u64) -> String {
        match self {
            Keys::Argument(arg) => argument_key(*arg, value),
            Keys::Scopes(tree) => tree.name(value),
        }
    }

    fn others(&self) -> String {
        match self {
            Keys::Argument(_) => OTHER_VALUES.to_owned(),
            Keys::Scopes(_) => NO_ROOM.to_owned(),
        }
    }
}

fn together(parts: impl Iterator<Item = (String, Measured)>) -> BTreeMap<String, Measured> {
    let mut all: BTreeMap<String, Measured> = BTreeMap::new();
    for (key, part) in parts {
        all.entry(key).or_default().add(&part);
    }
    all
}

/// Returns the hits of each value, and the sum for the values that found no room.
fn by_value(keys: &Keys, values: &Values, all: u64) -> Vec<(String, Measured)> {
    let others = values.others(all);
    let others = (others > 0).then(|| (keys.others(), others));
    let known = values.iter().map(|(value, hits)| (keys.of(value), hits));
    let measured = |count| Measured {
        reading: Reading {
            count,
            ..Reading::default()
        },
        times: None,
    };
    let all = known.chain(others);
    all.map(|(key, hits)| (key, measured(hits))).collect()
}

fn by_timed_value(
    keys: &Keys,
    values: &TimedValues,
    follow: Follow,
) -> impl Iterator<Item = (String, Measured)> {
    values.iter().map(move |(value, words)| {
        let key = value.map_or_else(|| keys.others(), |v| keys.of(v));
        let measured = Measured {
            reading: calls::reading(words, 0, follow),
            times: calls::histogram(words, 0, follow),
        };
        (key, measured)
    })
}

fn part(one: &AgentCounter, values: &[u64]) -> Option<Measured> {
    let reading = calls::reading(values, one.site.slot, one.follow);
    (reading.hits() > 0).then(|| Measured {
        reading,
        times: calls::histogram(values, one.site.slot, one.follow),
    })
}
