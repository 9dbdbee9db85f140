use crate::Event;

/// Slots in which events count, for example hardware counters or debug registers.
pub trait Pmu {
    /// Returns how many events can count at a time; `u32::MAX` is no limit.
    fn slots(&self) -> u32;

    /// Starts counting an event.
    fn add(&mut self, event: Event) -> Result<(), NoUsableSlot>;

    /// Stops counting an added event.
    fn delete(&mut self, event: Event);
}

/// No free slot can count this event while the others count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoUsableSlot;
