//! The forks that the agent (tiptoe's library) counts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use tiptoe_attach::Attached;
use tiptoe_attach::link::Link;
use tiptoe_event::Cost;
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::{Site, slots};

use crate::counts;
use crate::forks::CopiedMemory;

#[derive(Default)]
pub struct ForkCounts {
    copied: RefCell<Option<CopiedMemory>>,
    looks: Cell<u32>,
    /// Forks before counting began.
    early: Cell<u64>,
}

impl ForkCounts {
    pub fn count(&self, target: &Attached) -> u64 {
        all_forks(target).saturating_sub(self.early.get())
    }

    pub fn leave_out(&self, target: &Attached) {
        self.early.set(all_forks(target));
    }

    pub fn cost(&self) -> Option<Cost> {
        Some(self.copied.borrow().as_ref()?.cost())
    }

    /// Reads what forks copy, but only in calls number 1, 2, 4 and so on, because that memory changes little later.
    /// The process must not have ended.
    pub fn look(&self, target: &Attached, agent_sites: &[Site]) {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        if !looks.is_power_of_two() {
            return;
        }
        let sites: BTreeSet<u64> = agent_sites.iter().map(|site| site.address).collect();
        let is_patched = |mapping: &Mapping| {
            let mut inside = sites.range(mapping.start..mapping.end);
            inside.next().is_some()
        };
        let link = target.link.as_ref();
        let look = |link: &Link| {
            let (start, len) = link.data().kept();
            let tables = start..start.saturating_add(len);
            CopiedMemory::of(target.process, tables, is_patched)
        };
        let copied = link.and_then(look);
        if copied.is_some() {
            self.copied.replace(copied);
        }
    }
}

fn all_forks(target: &Attached) -> u64 {
    let counted = slots::FORKS..slots::FORKS + 1;
    let link = target.link.as_ref();
    let sums = link.map(|link| counts::sums(link.data_file(), link.geometry(), counted));
    let sums = sums.and_then(Result::ok);
    sums.and_then(|sums| sums.first().copied()).unwrap_or(0)
}
