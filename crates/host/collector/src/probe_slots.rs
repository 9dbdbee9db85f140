//! Assigns slots (indexes of counters) to functions of files, so that a library that is loaded again, at any address,
//! continues its counts.

use std::collections::{HashMap, HashSet};

use crate::module::FileKey;
use crate::planner::Follow;
use crate::resolve::Probe;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotKey {
    file: FileKey,
    address: u64,
    follow: Follow,
}

impl SlotKey {
    pub fn of(probe: &Probe) -> SlotKey {
        SlotKey {
            file: probe.object.key,
            address: probe.place_in_file(),
            follow: probe.follow,
        }
    }
}

#[derive(Default)]
pub struct ProbeSlots {
    slots: HashMap<SlotKey, u32>,
    taken: HashSet<u32>,
}

impl ProbeSlots {
    pub fn slot(&self, key: &SlotKey) -> Option<u32> {
        self.slots.get(key).copied()
    }

    pub fn has(&self, slot: u32) -> bool {
        self.taken.contains(&slot)
    }

    pub fn insert(&mut self, key: SlotKey, slot: u32) {
        self.taken.insert(slot);
        self.slots.insert(key, slot);
    }
}
