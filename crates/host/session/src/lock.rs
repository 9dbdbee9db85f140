//! Contended locks of programs.

use serde::{Deserialize, Serialize};

use crate::{Dropped, Histogram, Via, Waiting};

/// The locks of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Locks {
    /// The subject of a row: `lock`, `callsite`, `thread`, `type` or `scope`.
    pub by: String,
    /// An agent in the program, or the kernel's futex tracepoints.
    #[serde(with = "crate::words")]
    #[cfg_attr(test, schemars(with = "crate::schema::ViaWord"))]
    pub via: Via,
    /// The waits, those with the most time first.
    pub rows: Vec<Lock>,
    /// The hold times of the lock of `--hold`, by call site.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// Futex calls that wait, as the kernel counts them.
    pub waits: u64,
    /// Futex calls that wake, as the kernel counts them.
    pub wakes: u64,
    /// Waits in progress at the end of the trace.
    pub unfinished: u64,
    /// Calls in no row, because their threads had no room for more.
    pub others: u64,
    /// The tracepoints' reports that were not counted, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
    /// Rings of threads at the end of the trace, each waiting for the next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<Deadlock>,
}

/// A deadlock: each thread waits for a lock that the next one holds, and the last for one of the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Deadlock {
    /// Their process.
    pub pid: u32,
    /// Their waits, in the ring's order.
    pub waits: Vec<Waiting>,
}

/// Waits for one lock, or for the subject of `--by`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Lock {
    /// The lock's name or address, or the subject.
    pub lock: String,
    /// "mutex", "rwlock", "condition variable", "semaphore", …
    #[serde(rename = "type")]
    pub kind: String,
    /// "read" or "write", for a rwlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Whether threads wait for an event rather than a holder's release: condition variables, semaphores, joins.
    pub idle: bool,
    /// The call site with the most waiting time.
    pub callsite: String,
    /// The number of call sites.
    pub callsites: u64,
    /// Contended calls; one may wait several times.
    pub episodes: u64,
    /// Waits that slept until a wake, a timeout or a signal.
    pub slept: u64,
    /// Waits that returned at once: the lock had changed hands.
    pub at_once: u64,
    /// Sleeping waits that timed out.
    pub timed_out: u64,
    /// Sleeping waits that a signal ended.
    pub interrupted: u64,
    /// Sleeping waits that never returned, because their thread was cancelled or jumped out of them. They are in no
    /// histogram, and "total_ns" has only the time until tiptoe last saw their thread in them.
    #[serde(skip_serializing_if = "is_zero")]
    pub left: u64,
    /// The time asleep.
    pub total_ns: u64,
    /// The number of timed waits, if the budget did not allow timing all that slept: a random sample, from which the
    /// total, the histogram and the blame are estimated. All other numbers are exact. Absent if all were timed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<u64>,
    /// For a rwlock: its readers when waits began. Absent for waits that only the kernel's tracepoints reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<Readers>,
    /// The histogram of the sleeping waits.
    pub histogram: Option<Histogram>,
    /// The call sites that ended waits, the most waiting time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blame: Vec<Blame>,
    /// Who held the lock while others waited, the longest first. Empty unless at least 95% of the waiting time has a
    /// known holder, or is from a release until a waiter woke up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// With holders: nanoseconds of waiting in which the holder is unknown, mostly while a waiter was waking up. The
    /// lock may have been free then, or held by threads that did not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_ns: Option<u64>,
    /// Waits that began before the trace; no other number includes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early: Option<Early>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Waits that began before the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Early {
    /// How many.
    pub waits: u64,
    /// How many were in progress at the end.
    pub unfinished: u64,
    /// For how long the oldest had slept when the trace began, at least: a stopped thread, or one that
    /// gets a signal, begins anew.
    pub before_ns: u64,
    /// The sum of the observed times.
    pub total_ns: u64,
}

impl Early {
    /// Adds the early waits of another row.
    pub fn add(&mut self, more: &Early) {
        self.waits = self.waits.saturating_add(more.waits);
        self.unfinished = self.unfinished.saturating_add(more.unfinished);
        self.before_ns = self.before_ns.max(more.before_ns);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
    }
}

/// The hold times of a lock, by the call site that took it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Hold {
    /// The lock.
    pub lock: String,
    /// The call site.
    pub callsite: String,
    /// The number of holds.
    pub count: u64,
    /// The time of these holds.
    pub total_ns: u64,
    /// The histogram of the hold times.
    pub histogram: Option<Histogram>,
    /// Whether the hold began before the trace: it is not in "count", and "total_ns" is a lower bound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_at_least: bool,
}

/// The readers of a rwlock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Readers {
    /// The mean when waits began.
    pub average: f64,
    /// The maximum when waits began.
    pub most: u64,
}

/// A call site that ended waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Blame {
    /// The call site.
    pub callsite: String,
    /// The number of waits.
    pub count: u64,
    /// The time of these waits.
    pub total_ns: u64,
}

/// A holder of a lock: a call site, a thread whose call site is unknown, or all threads that read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Holder {
    /// The call site that released the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callsite: Option<String>,
    /// The thread: its id and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Whether these are all threads that held a rwlock to read.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub readers: bool,
    /// The time of other threads' waiting in which this holder had the lock.
    pub total_ns: u64,
}
