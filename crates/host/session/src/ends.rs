//! How calls ended, if they were traced from their entry on.

use serde::{Deserialize, Serialize};
use tiptoe_event::Ends as Reading;

/// The calls of one event, or of a part of its count, by how they ended. Each entered call is in exactly one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ends {
    /// Calls that returned.
    pub returns: u64,
    /// Calls that never returned, because longjmp or an exception ended them, or because their thread ended.
    pub left: u64,
    /// Calls still running at the end of the trace.
    pub inside: u64,
    /// Calls that were only counted at their entry, because the budget was used up or tiptoe could not trace their end.
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
