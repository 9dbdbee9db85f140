//! Waits for locks: who waited how long for what.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// What was waited for in a session that watched locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// What tells rows apart besides type, mode and outcome: `callsite`, `type`, `lock`, `thread`,
    /// `process` or `cgroup`.
    pub by: String,
    /// The rows, those that took most time first.
    pub rows: Vec<Wait>,
    /// Waits that had begun and were not over when the trace ended: they are in no row.
    pub unfinished: u64,
    /// What was seen and not counted, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
}

/// Waits of one kind, of one of what they were told apart by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    /// The lock's type, such as `mmap_lock`, `rwsem`, `mutex` or `spinlock`.
    #[serde(rename = "type")]
    pub kind: String,
    /// How it was asked for.
    pub mode: Mode,
    /// How the waits ended.
    pub outcome: Outcome,
    /// Whose waits these are, or for which lock: what `by` says, in words. None of `callsite`, which
    /// has a key of its own, and of `type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where the lock was asked for; of several places that where most time was waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callsite: Option<String>,
    /// How many such places there are.
    pub callsites: u64,
    /// The callers of the call site, the nearest first, where they were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// How many waits.
    pub count: u64,
    /// How long they took together.
    pub total_ns: u64,
    /// How long each took.
    pub histogram: Histogram,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Beside other readers.
    Read,
    /// Alone, of a lock that has readers too.
    Write,
    /// Alone, as always with this type of lock.
    #[default]
    Exclusive,
}

/// How waits ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// With the lock.
    #[default]
    Acquired,
    /// Without it: by a signal, by a timeout, or because it was only tried.
    Failed,
    /// No wait: who had the lock for writing has it for reading from then on.
    Downgraded,
}

/// So many events were not counted for this reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// Why: a few words that follow "not counted:".
    pub reason: String,
    /// How many.
    pub count: u64,
}
