//! The counts of a program's scopes.

use serde::{Deserialize, Serialize};

/// The scopes of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scopes {
    /// The charged events, by perf's names.
    pub events: Vec<String>,
    /// Each scope, and the time outside all scopes; the most CPU time first.
    pub rows: Vec<Scope>,
}

/// One scope. It excludes the scopes inside it, which have rows of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// The scope's name after its parents', such as `checkout/payment`. `(no scope)` is the time outside all scopes;
    /// `(other scopes)` are the scopes that found no room.
    pub name: String,
    /// How often the scope was entered.
    pub entries: u64,
    /// The time that threads were inside the scope, running or not; unknown for `(no scope)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<u64>,
    /// The CPU time of threads inside the scope, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// The number of each event, if known.
    pub counts: Vec<u64>,
}
