//! What counts events: so many at a time.

use crate::Event;

/// A thing with slots: hardware counters, debug registers, a budget.
pub trait Pmu {
    /// How many events can count at a time; `u32::MAX` where that is no question.
    fn slots(&self) -> u32;

    /// Has an event count from now on.
    fn add(&mut self, event: Event) -> Result<(), Refused>;

    /// Has it count no more; it was added before.
    fn delete(&mut self, event: Event);
}

/// There is a slot, but not one that this event can use beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;
