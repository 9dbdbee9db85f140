//! Waits for the kernel's locks.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// The waits of a session that watched the kernel's locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Waits {
    /// What rows are grouped by, besides type, mode and outcome: `callsite`, `type`, `lock`, `thread`, `process` or
    /// `cgroup`.
    pub by: String,
    /// The rows, the most time first.
    pub rows: Vec<Wait>,
    /// Waits in progress at the end of the trace; no row includes them.
    pub unfinished: u64,
    /// Events that were not counted, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
}

/// The waits of one group, for one type of lock, mode and outcome.
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
    /// The group's key. Absent if rows are grouped by `callsite` or `type`, because these fields are then the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The call site with the most waiting time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callsite: Option<String>,
    /// The number of call sites.
    pub callsites: u64,
    /// The callers of `callsite`, innermost first, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<String>,
    /// The number of waits.
    pub count: u64,
    /// The sum of the waits' times.
    pub total_ns: u64,
    /// The histogram of the waits' times.
    pub histogram: Histogram,
}

/// How a lock is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusively, for a lock that may also have readers.
    Write,
    /// Exclusively, because the lock has no other mode.
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
    /// The thread did not get the lock: a signal or a timeout ended the wait, or the thread only tried the lock.
    Failed,
    /// The writer became a reader, without a wait.
    Downgraded,
}

/// Events that were not counted, or only in part, for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Dropped {
    /// The reason. For a watched variable, the reason also says whether the events were counted.
    pub reason: String,
    /// The number of events.
    pub count: u64,
}
