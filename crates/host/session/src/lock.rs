//! What was seen of contended locks.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// What was seen of the locks of programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Locks {
    /// What one row is of.
    pub by: String,
    /// The waits, those with the most time first.
    pub rows: Vec<Lock>,
    /// Futex calls that wait, and those that wake: as the kernel counts them.
    pub waits: u64,
    /// As above.
    pub wakes: u64,
    /// Waits that had not ended when the trace did.
    pub unfinished: u64,
    /// Calls that were not told apart, as their threads had no room for more.
    pub others: u64,
}

/// Waits for one lock, or whatever else a row is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lock {
    /// The lock, by its name or where it is; with `--by` what that asks for.
    pub lock: String,
    /// What it is: "mutex", "rwlock", "condition variable", "semaphore", …
    #[serde(rename = "type")]
    pub kind: String,
    /// "read" or "write", of a rwlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether a thread waits there for something to happen rather than for somebody to
    /// give it back: condition variables, semaphores, joins.
    pub idle: bool,
    /// From where it was waited for, with the most time; how many others there are.
    pub callsite: String,
    /// As above.
    pub callsites: u64,
    /// Contended calls: one may wait several times.
    pub episodes: u64,
    /// Waits that slept: until somebody ended them, their time was over, a signal came.
    pub slept: u64,
    /// Waits that returned at once: the lock had changed hands.
    pub at_once: u64,
    /// Of those that slept, these ended with their time.
    pub timed_out: u64,
    /// And these with a signal.
    pub interrupted: u64,
    /// Nanoseconds asleep.
    pub total_ns: u64,
    /// How long those that slept did.
    pub histogram: Option<Histogram>,
    /// From where waits were ended, those that ended the most time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blame: Vec<Blame>,
}

/// Who ended waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Blame {
    /// From where.
    pub callsite: String,
    /// How many.
    pub count: u64,
    /// Nanoseconds of these waits.
    pub total_ns: u64,
}
