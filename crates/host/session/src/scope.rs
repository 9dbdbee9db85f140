//! The counts of scopes, which are parts of a program's work that the program labels (crate tiptoe-scope).

use serde::{Deserialize, Serialize};

/// The scopes of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Scopes {
    /// The events that are counted in each scope, by perf's names.
    pub events: Vec<String>,
    /// A row for each scope and one for the time outside all scopes, the most CPU time first.
    pub rows: Vec<Scope>,
    /// The number of intervals, if requested. Intervals are printed as [`ScopeCounts`], and not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<u64>,
}

/// The scopes of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ScopeCounts {
    /// The interval's end, since the start.
    pub at_ns: u64,
    /// The interval's length.
    pub duration_ns: u64,
    /// The counted events, as in [`Scopes`].
    pub events: Vec<String>,
    /// The rows, as in [`Scopes`]. A scope without time, entries and events in the interval has no row.
    pub rows: Vec<Scope>,
}

/// One scope. All its numbers exclude the scopes inside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Scope {
    /// The scope's name, after those of its parents: `checkout/payment`. `(no scope)` is the time outside all scopes,
    /// and `(other scopes)` the sum of the scopes for which there was no room.
    pub name: String,
    /// How often the scope was entered.
    pub entries: u64,
    /// The time that threads were inside the scope, running or not; absent for `(no scope)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<u64>,
    /// The CPU time that threads used inside the scope, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// The count of each event of `events`, in that order; empty if unknown.
    pub counts: Vec<u64>,
}
