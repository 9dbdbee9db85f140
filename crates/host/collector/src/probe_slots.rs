//! Assigns slots to functions of files, so that a library that is loaded again, at any address,
//! continues its counts.

use std::collections::{HashMap, HashSet};

use crate::module::FileKey;
use crate::planner::Follow;
use crate::resolve::Probe;

/// An address in a file, and what is recorded there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeRow {
    file: FileKey,
    address: u64,
    follow: Follow,
}

impl ProbeRow {
    pub fn of(probe: &Probe) -> ProbeRow {
        ProbeRow {
            file: probe.object.key,
            address: probe.function.address + probe.offset,
            follow: probe.follow,
        }
    }
}

/// The slots of a session.
#[derive(Default)]
pub struct Rows {
    slots: HashMap<ProbeRow, u32>,
    taken: HashSet<u32>,
}

impl Rows {
    pub fn slot(&self, row: &ProbeRow) -> Option<u32> {
        self.slots.get(row).copied()
    }

    /// Returns whether a slot belongs to a row.
    pub fn has(&self, slot: u32) -> bool {
        self.taken.contains(&slot)
    }

    /// Assigns a slot to a row; returns `true` if the row had none.
    pub fn insert(&mut self, row: ProbeRow, slot: u32) -> bool {
        self.taken.insert(slot);
        self.slots.insert(row, slot).is_none()
    }
}
