//! A resource with a limited number of slots.

use crate::Event;

/// A resource with slots: hardware counters, debug registers, a budget.
pub trait Pmu {
    /// Returns how many events can count at a time; `u32::MAX` for no limit.
    fn slots(&self) -> u32;

    /// Starts counting an event.
    fn add(&mut self, event: Event) -> Result<(), NoUsableSlot>;

    /// Stops counting an event that was added.
    fn delete(&mut self, event: Event);
}

/// There is a free slot, but none that this event can use beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoUsableSlot;
