//! How the agent kept its copy of the address space.

use tiptoe_session::AddressSpace;
use tiptoe_wire::slots;

use super::TracedProcess;
use crate::counts;

impl TracedProcess {
    /// Returns how the agent kept its copy of the address space, and the copy's last state. All of
    /// it is the target's claim, and must only be displayed.
    pub fn address_space(&self) -> Option<AddressSpace> {
        let link = self.target.link.as_ref()?;
        if self.has_serving_agent() {
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
