//! The agent's counts of forks and of the address space.

use std::collections::BTreeSet;

use tiptoe_event::Cost;
use tiptoe_session::AddressSpace;
use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::slots;

use super::Tracee;
use crate::counts;
use crate::forks::CopiedMemory;

impl Tracee {
    /// Returns the number of forks that the agent has counted in the reported time.
    pub fn forks(&self) -> u64 {
        self.all_forks().saturating_sub(self.early_forks.get())
    }

    /// Excludes the forks until now.
    pub fn leave_out_forks(&self) {
        self.early_forks.set(self.all_forks());
    }

    fn all_forks(&self) -> u64 {
        let counted = slots::FORKS..slots::FORKS + 1;
        let link = self.target.link.as_ref();
        let sums = link.map(|link| counts::sums(link.data_file(), link.geometry(), counted));
        let sums = sums.and_then(Result::ok);
        sums.and_then(|sums| sums.first().copied()).unwrap_or(0)
    }

    /// Looks at the memory of tiptoe that a fork would copy. Looks at calls whose number is a power
    /// of two, because that memory changes little later. The process must still live.
    pub fn look_at_copied(&self) {
        let looks = self.looks.get() + 1;
        self.looks.set(looks);
        if !looks.is_power_of_two() {
            return;
        }
        let sites = self.later.agent_sites.iter().map(|site| site.address);
        let sites: BTreeSet<u64> = sites.collect();
        let is_patched = |mapping: &Mapping| {
            let mut inside = sites.range(mapping.start..mapping.end);
            inside.next().is_some()
        };
        let copied =
            self.target.link.as_ref().and_then(|link| {
                CopiedMemory::of(self.target.process, link.data().kept(), is_patched)
            });
        if copied.is_some() {
            self.copied.replace(copied);
        }
    }

    /// Returns the additional cost of each fork; `None` if no look was possible.
    pub fn fork_cost(&self) -> Option<Cost> {
        Some(self.copied.borrow().as_ref()?.cost())
    }

    /// Returns how the agent kept its copy of the address space, and the copy's last state. All of
    /// it is the target's claim, and must only be displayed.
    pub fn address_space(&self) -> Option<AddressSpace> {
        let link = self.target.link.as_ref()?;
        if !(self.left.get().is_some() || self.target.has_ended() || self.has_execed()) {
            // If the agent does not answer, its last reading stays.
            let _ = link.read_maps();
        }
        let readings = link.data().readings();
        let counted = slots::SPECULATIVE..slots::CHANGES + 1;
        let sums = counts::sums(link.data_file(), link.geometry(), counted).ok()?;
        let sum = |slot: u32| {
            let index = (slot - slots::SPECULATIVE) as usize;
            sums.get(index).copied().unwrap_or(0)
        };
        Some(AddressSpace {
            speculative: sum(slots::SPECULATIVE),
            locked: sum(slots::LOCKED),
            missed: sum(slots::MISSED),
            changes: sum(slots::CHANGES),
            readings: readings.readings,
            corrected: readings.corrected,
            mappings: readings.mappings,
            bytes: readings.bytes,
        })
    }
}
