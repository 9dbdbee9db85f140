//! The waits of a process at one moment.

use serde::{Deserialize, Serialize};

/// The waiting threads of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Now {
    /// The waits, in the order of thread ids.
    pub waits: Vec<WaitingThread>,
    /// The deadlocks, each as a ring of thread ids: each thread waits for the next, and the last for the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<Vec<u32>>,
}

/// A waiting thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct WaitingThread {
    /// The thread's id.
    pub tid: u32,
    /// The thread's name.
    pub comm: String,
    /// The lock's name or address.
    pub lock: String,
    /// The type of lock.
    #[serde(rename = "type")]
    pub kind: String,
    /// "read" or "write", for a rwlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether the thread waits for an event rather than for the release of a lock.
    pub idle: bool,
    /// The call site of the wait.
    pub callsite: String,
    /// The time since the thread last ran, if the kernel reports that. The wait may be longer, because a signal,
    /// SIGSTOP or a tracer's attach makes a waiting thread run briefly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asleep_ns: Option<u64>,
    /// The number of readers, for a rwlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<u32>,
    /// The thread that holds the lock, if the lock records it; for a join, the thread whose end is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<u32>,
    /// The holder's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_comm: Option<String>,
}
