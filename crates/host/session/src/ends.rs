//! How calls ended that were followed from their entry on.

use serde::{Deserialize, Serialize};
use tiptoe_event::Ends as Reading;

/// The calls of one event, or of a part of it: each that was entered is in one
/// of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Calls that returned.
    pub returns: u64,
    /// Calls that were left without a return: by longjmp, by an exception, or
    /// because their thread ended.
    pub left: u64,
    /// Calls that still ran when the trace ended.
    pub inside: u64,
    /// Calls whose end nobody saw, because the budget was spent or there was
    /// no room for them: they were counted at their entry, and not timed.
    pub only_counted: u64,
}

impl From<Reading> for Ends {
    fn from(reading: Reading) -> Ends {
        Ends {
            returns: reading.returns,
            left: reading.left,
            inside: reading.inside,
            only_counted: reading.only_counted,
        }
    }
}

impl From<Ends> for Reading {
    fn from(ends: Ends) -> Reading {
        Reading {
            returns: ends.returns,
            left: ends.left,
            inside: ends.inside,
            only_counted: ends.only_counted,
        }
    }
}
