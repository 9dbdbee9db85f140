//! What a program did in its scopes.

use serde::{Deserialize, Serialize};

/// Scopes of a whole session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scopes {
    /// The events that were charged, by perf's names.
    pub events: Vec<String>,
    /// Each scope, and what was done in none, that which took most CPU time first.
    pub rows: Vec<Scope>,
}

/// One scope, within those that it is in; what is in scopes within it is theirs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// Its name behind those that it is within, such as `checkout/payment`; `(no scope)` is what is in none, and
    /// `(other scopes)` that for which there was no room.
    pub name: String,
    /// How often it was entered.
    pub entries: u64,
    /// How long threads were in it, whether they ran or not. Not known of `(no scope)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<u64>,
    /// For how long of that they ran, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// How often each of the events happened, where that is known.
    pub counts: Vec<u64>,
}
