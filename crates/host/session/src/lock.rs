//! Contended locks of programs.

use serde::{Deserialize, Serialize};

use crate::{Dropped, Histogram, Via, WaitingThread};

/// The locks of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Locks {
    /// What the waits are grouped by: `lock`, `callsite`, `thread`, `type` or `scope`.
    pub by: String,
    /// What reported the waits: an agent (tiptoe's library in the program), or the kernel's futex tracepoints.
    #[serde(with = "crate::words")]
    #[cfg_attr(test, schemars(with = "crate::schema::ViaWord"))]
    pub via: Via,
    /// The sums of waits, the most waiting time first.
    pub rows: Vec<Lock>,
    /// The hold times of the lock of `--hold`, by call site.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// The number of futex calls that may wait.
    pub waits: u64,
    /// The number of futex calls that wake.
    pub wakes: u64,
    /// Waits of killed threads (in no row), and waits in progress at the end of the trace.
    pub unfinished: u64,
    /// Calls that are in no row, because their thread had no room for another row.
    pub others: u64,
    /// Events of the kernel's tracepoints that were not counted, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
    /// The deadlocks at the end of the trace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<Deadlock>,
}

/// A deadlock, as a ring: each thread waits for a lock that the next one holds, and the last for a lock of the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Deadlock {
    /// The process of the threads.
    pub pid: u32,
    /// The threads' waits, in the order of the ring.
    pub waits: Vec<WaitingThread>,
}

/// The waits of one lock, call site, thread, type or scope.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Lock {
    /// The lock's name or address, or what `--by` groups by.
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
    /// The number of contended calls. A call may wait several times.
    pub episodes: u64,
    /// Waits that slept until a wake, a timeout or a signal.
    pub slept: u64,
    /// Waits that returned at once, because the lock changed before the thread slept.
    pub at_once: u64,
    /// Sleeping waits that timed out.
    pub timed_out: u64,
    /// Sleeping waits that a signal ended.
    pub interrupted: u64,
    /// Sleeping waits that never returned, because their thread was cancelled or jumped out of the call. They are in no
    /// histogram, and "total_ns" contains only the time until tiptoe last saw the thread waiting.
    #[serde(skip_serializing_if = "is_zero")]
    pub left: u64,
    /// The sum of the sleeping waits' times.
    pub total_ns: u64,
    /// How many sleeping waits were timed; absent if all were. To keep the budget, tiptoe may time only a random
    /// sample. The total, the histogram and the blame are then estimates; all other numbers are exact.
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
    /// The holders of the lock while other threads waited, those with the most time first. Empty if a wait was not
    /// timed, or if the holder is unknown in more than 5% of the waiting time. This percentage excludes the time from
    /// a release until a waiter wakes up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<Holder>,
    /// The waiting time in which the holder is unknown; absent without `holders`. This time is mostly from a release
    /// until a waiter wakes up. The lock is then free, or held by threads that did not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_ns: Option<u64>,
    /// Waits that began before the trace; no other number of the row includes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early: Option<EarlyWaitSums>,
    /// Waits that were not over when the trace ended; no other number of the row includes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Unfinished>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Waits that began before the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct EarlyWaitSums {
    /// The number of these waits.
    pub waits: u64,
    /// How many of these waits were in progress at the end of the trace.
    pub unfinished: u64,
    /// A lower bound of how long the oldest of these waits had slept when the trace began. A stop or a signal makes a
    /// thread begin its wait again, so the wait may be older.
    pub before_ns: u64,
    /// The sum of the waits' times, including a lower bound of each wait's time before the trace.
    pub total_ns: u64,
}

impl EarlyWaitSums {
    /// Adds another row's early waits.
    pub fn add(&mut self, more: &EarlyWaitSums) {
        self.waits = self.waits.saturating_add(more.waits);
        self.unfinished = self.unfinished.saturating_add(more.unfinished);
        self.before_ns = self.before_ns.max(more.before_ns);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
    }
}

/// Waits that were not over when the trace ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Unfinished {
    /// The number of these waits.
    pub waits: u64,
    /// The sum of their times until the end of the trace.
    pub total_ns: u64,
}

impl Unfinished {
    /// Adds another row's waits.
    pub fn add(&mut self, more: &Unfinished) {
        self.waits = self.waits.saturating_add(more.waits);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
    }
}

/// How long a lock was held after one call site took it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Hold {
    /// The lock's name or address.
    pub lock: String,
    /// The call site that took the lock.
    pub callsite: String,
    /// The number of holds.
    pub count: u64,
    /// The time of these holds.
    pub total_ns: u64,
    /// The histogram of the hold times.
    pub histogram: Option<Histogram>,
    /// Whether a hold began before the trace. That hold is not in "count", and "total_ns" is a lower bound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_at_least: bool,
}

/// The readers of a rwlock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Readers {
    /// The mean number of readers when a wait began.
    pub average: f64,
    /// The largest number of readers when a wait began.
    pub most: u64,
}

/// A call site that ended waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Blame {
    /// The call site.
    pub callsite: String,
    /// The number of waits that the call site ended.
    pub count: u64,
    /// The time of these waits.
    pub total_ns: u64,
}

/// A holder of a lock: a call site, a thread whose call site is unknown, or all threads that read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Holder {
    /// The call site that released the lock. The call site that took the lock is unknown, because tiptoe does not
    /// trace calls that take a free lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callsite: Option<String>,
    /// The holding thread's id and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Whether all threads that read a rwlock are the holder.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub readers: bool,
    /// The sum of other threads' waiting times while this holder had the lock.
    pub total_ns: u64,
}
