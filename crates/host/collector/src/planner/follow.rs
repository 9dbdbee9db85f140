//! What is recorded of each hit of a probe. If a call is *followed*, its return is recorded, too.

use tiptoe_wire::calls::words;
use tiptoe_wire::{ring, timed_values, values};

/// The most functions whose calls are timed separately for each value of an argument.
pub const MOST_BY_VALUE: usize = 280;

/// The most counters of a thread for calls timed by value. They are limited because all of them are mapped for each
/// thread, 226 KB for each function.
const MOST_TIMED_VALUES: u32 = 1 << 23;
// Timed values must leave room for functions that are only counted.
const _: () = assert!(MOST_BY_VALUE as u32 * timed_values::WIDTH < MOST_TIMED_VALUES - (1 << 18));

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Follow {
    #[default]
    No,
    Returns,
    Times,
    Values,
    TimedValues,
    /// A record of each hit, with the first two arguments.
    Record,
    /// Hits of the gate, which is the function of `--under`. Its calls are followed, so that the agent (tiptoe's
    /// library) knows which threads are inside.
    Gate,
}

impl Follow {
    pub fn is_followed(self) -> bool {
        !matches!(self, Follow::No | Follow::Values | Follow::Record)
    }

    pub fn is_timed(self) -> bool {
        matches!(self, Follow::Times | Follow::TimedValues)
    }

    pub fn entries(self) -> Follow {
        match self {
            Follow::Values | Follow::TimedValues => Follow::Values,
            _ => Follow::No,
        }
    }

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

    pub fn room(self, probes: u32) -> u32 {
        self.within(probes.saturating_mul(self.width()))
    }

    /// Limits `counters` to the most that a thread can have for this recording.
    pub fn within(self, counters: u32) -> u32 {
        match self {
            Follow::TimedValues => counters.min(MOST_TIMED_VALUES),
            _ => counters,
        }
    }
}
