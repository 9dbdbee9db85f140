//! Waits for the kernel's locks.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// The waits of a session that watched the kernel's locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Waits {
    /// How rows are grouped besides by type, mode and outcome: `callsite`, `type`, `lock`,
    /// `thread`, `process` or `cgroup`.
    pub by: String,
    /// The rows, the most time first.
    pub rows: Vec<Wait>,
    /// Waits in progress at the end of the trace, in no row.
    pub unfinished: u64,
    /// What was seen but not counted, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
}

/// Waits of one group, for one type of lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Wait {
    /// `mmap_lock`, `rwsem`, `mutex`, `spinlock`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// The requested mode.
    pub mode: Mode,
    /// The outcome.
    pub outcome: Outcome,
    /// The group's key; absent for `callsite`, which has its own, and for `type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The call site with the most waiting time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callsite: Option<String>,
    /// The number of call sites.
    pub callsites: u64,
    /// Its callers, innermost first, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// The number of waits.
    pub count: u64,
    /// The sum of their times.
    pub total_ns: u64,
    /// The histogram of their times.
    pub histogram: Histogram,
}

/// How a lock is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Alone, for a lock that also has readers.
    Write,
    /// Alone, because the lock has no other mode.
    #[default]
    Exclusive,
}

/// How waits ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The thread got the lock.
    #[default]
    Acquired,
    /// It did not: a signal or a timeout ended its wait, or it only tried.
    Failed,
    /// Not a wait: the writer became a reader.
    Downgraded,
}

/// Events that were not counted, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Dropped {
    /// The reason, in words that follow "not counted:".
    pub reason: String,
    /// How many.
    pub count: u64,
}
