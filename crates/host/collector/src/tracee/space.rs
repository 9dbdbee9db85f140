//! What the agent knows of the address space.

use tiptoe_session::AddressSpace;
use tiptoe_wire::slots;

use super::Tracee;
use crate::counts;

impl Tracee {
    /// How the agent kept the address space, and what it is now, as far as it still can
    /// be asked. All of it is the target's claim, and only told.
    pub fn address_space(&self) -> Option<AddressSpace> {
        let link = self.link.as_ref()?;
        if !(self.left.get().is_some() || self.is_gone() || self.has_execed()) {
            // Where it does not answer it is as it was read last.
            let _ = link.read_maps();
        }
        let told = link.data().readings();
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
            readings: told.readings,
            corrected: told.corrected,
            mappings: told.mappings,
            bytes: told.bytes,
        })
    }
}
