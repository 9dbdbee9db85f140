//! A simulated PMU that counts, and checks its caller.
#![allow(dead_code, reason = "each test uses its part")]

pub mod model;
pub mod script;

use std::collections::{BTreeMap, BTreeSet};

use tiptoe_schedule::{Event, NoUsableSlot, Pmu};

#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub slots: u32,
    pub work: u64,
    /// The events that count, each with `work` at its addition.
    running: BTreeMap<Event, u64>,
    counts: BTreeMap<Event, u64>,
    /// Events added (`true`) and deleted since the log was cleared.
    pub log: Vec<(bool, Event)>,
    /// Events of which only one can count at a time.
    pub rivals: BTreeSet<Event>,
}

impl Counters {
    pub fn new(slots: u32) -> Counters {
        Counters {
            slots,
            ..Counters::default()
        }
    }

    pub fn running(&self) -> BTreeSet<Event> {
        self.running.keys().copied().collect()
    }

    pub fn count(&self, event: Event) -> u64 {
        let since = self.running.get(&event).map_or(0, |base| self.work - base);
        self.counts.get(&event).map_or(0, |count| *count) + since
    }
}

impl Pmu for Counters {
    fn slots(&self) -> u32 {
        self.slots
    }

    fn add(&mut self, event: Event) -> Result<(), NoUsableSlot> {
        assert!(
            self.running.len() < self.slots as usize,
            "more than the slots"
        );
        if self.rivals.contains(&event)
            && self.running.keys().any(|other| self.rivals.contains(other))
        {
            return Err(NoUsableSlot);
        }
        self.log.push((true, event));
        let before = self.running.insert(event, self.work);
        assert_eq!(before, None, "{event:?} is added twice");
        Ok(())
    }

    fn delete(&mut self, event: Event) {
        self.log.push((false, event));
        let base = self.running.remove(&event).expect("it was added");
        *self.counts.entry(event).or_default() += self.work - base;
    }
}
