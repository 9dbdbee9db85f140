//! A resource with a limited number of slots.

use crate::Event;

/// A resource with slots: hardware counters, debug registers, a budget.
pub trait Pmu {
    /// Returns how many events can count at a time, or `u32::MAX`.
    fn slots(&self) -> u32;

    /// Starts counting an event.
    fn add(&mut self, event: Event) -> Result<(), NoUsableSlot>;

    /// Stops counting an event that was added.
    fn delete(&mut self, event: Event);
}

/// No free slot can be used by this event beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoUsableSlot;
