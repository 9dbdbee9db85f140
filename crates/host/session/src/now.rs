//! Who waits for whom, at one moment.

use serde::{Deserialize, Serialize};

/// The threads of a process that wait for locks, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Now {
    /// They, in the order of their numbers.
    pub waits: Vec<Waiting>,
    /// Threads that wait for each other in a ring, each for the next one and the last for the
    /// first: they wait for ever.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<Vec<u32>>,
}

/// A thread that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// What it waits for: a lock's name, or where it is.
    pub lock: String,
    /// The kind of lock.
    #[serde(rename = "type")]
    pub kind: String,
    /// "read" or "write", of a rwlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether it waits for something to happen rather than for somebody to give it back.
    pub idle: bool,
    /// From where.
    pub callsite: String,
    /// How long ago it last ran, in nanoseconds, where the kernel says so. It has waited at least as long: a signal, SIGSTOP or
    /// a tracer's attach lets a thread run for a moment in the middle of its wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asleep_ns: Option<u64>,
    /// How many threads hold the lock to read, of a rwlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<u32>,
    /// The thread that holds the lock, where the lock says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<u32>,
}
