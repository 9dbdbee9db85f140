//! What is wanted of each hit.

use tiptoe_wire::calls::words;
use tiptoe_wire::{ring, timed_values, values};

/// The most functions whose calls are timed by value.
pub const MOST_BY_VALUE: usize = 280;

/// The most counters of threads whose calls are timed by value: a function has 226 KB of
/// them, of which a thread touches what it needs, and all threads' are mapped.
const MOST_TIMED_VALUES: u32 = 1 << 23;
// And what is only counted finds room besides.
const _: () = assert!(MOST_BY_VALUE as u32 * timed_values::WIDTH < MOST_TIMED_VALUES - (1 << 18));

/// What is wanted of each hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Follow {
    /// To be counted.
    #[default]
    No,
    /// To be counted again when the call returns.
    Returns,
    /// And timed.
    Times,
    /// To be counted by the value of an argument.
    Values,
    /// And timed.
    TimedValues,
    /// To be recorded, with its first two arguments.
    Record,
    /// Followed to its return, with the thread noted to be inside.
    Gate,
}

impl Follow {
    /// Whether calls are followed to their return.
    pub fn is_followed(self) -> bool {
        !matches!(self, Follow::No | Follow::Values | Follow::Record)
    }

    /// Whether they are timed.
    pub fn is_timed(self) -> bool {
        matches!(self, Follow::Times | Follow::TimedValues)
    }

    /// The same of entries alone.
    pub fn entries(self) -> Follow {
        match self {
            Follow::Values | Follow::TimedValues => Follow::Values,
            _ => Follow::No,
        }
    }

    /// How many counters a probe has.
    pub fn width(self) -> u32 {
        match self {
            Follow::No => 1,
            Follow::Values => values::WIDTH,
            Follow::Returns | Follow::Gate => words::UNTIMED,
            Follow::Times => words::ALL,
            Follow::TimedValues => timed_values::WIDTH,
            Follow::Record => ring::words::ALL,
        }
    }

    /// How many counters there are for so many probes.
    pub fn room(self, probes: u32) -> u32 {
        self.within(probes.saturating_mul(self.width()))
    }

    /// As many of these counters as there can be.
    pub fn within(self, counters: u32) -> u32 {
        match self {
            Follow::TimedValues => counters.min(MOST_TIMED_VALUES),
            _ => counters,
        }
    }
}
