//! Calls that `--record` records and prints while the trace runs, and their number.

use serde::{Deserialize, Serialize};
use tiptoe_event::Records as Reading;

/// The calls of one event with `--record`, each in exactly one of these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Records {
    /// Recorded calls.
    pub recorded: u64,
    /// Calls whose record was lost, because the program made calls faster than tiptoe read the records.
    #[serde(rename = "records_lost")]
    pub lost: u64,
    /// Calls that were only counted, because the budget was used up or their thread had no buffer.
    pub only_counted: u64,
}

impl From<Reading> for Records {
    fn from(reading: Reading) -> Records {
        Records {
            recorded: reading.recorded,
            lost: reading.lost,
            only_counted: reading.only_counted,
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Call<'a> {
    /// The call's start, since the start of the session.
    pub at_ns: u64,
    /// The calling thread, in the program's own PID namespace.
    pub tid: u32,
    /// The thread's name.
    pub comm: &'a str,
    /// The event's full name.
    pub event: &'a str,
    /// The first integer argument (see `are_registers`); absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arg0: Option<u64>,
    /// The second integer argument (see `are_registers`); absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arg1: Option<u64>,
    /// Whether the function's parameters are unknown. `arg0` and `arg1` are then what the registers contain.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub are_registers: bool,
}
