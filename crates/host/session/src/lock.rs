//! What was seen of contended locks.

use serde::{Deserialize, Serialize};

use crate::{Dropped, Histogram, Via, Waiting};

/// What was seen of the locks of programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Locks {
    /// What one row is of.
    pub by: String,
    /// Who told of them: an agent in the program, or the kernel's futex tracepoints.
    #[serde(with = "crate::words")]
    pub via: Via,
    /// The waits, those with the most time first.
    pub rows: Vec<Lock>,
    /// How long the lock of `--hold` was held, by the call site that took it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Hold>,
    /// Futex calls that wait, and those that wake: as the kernel counts them.
    pub waits: u64,
    /// As above.
    pub wakes: u64,
    /// Waits that had not ended when the trace did.
    pub unfinished: u64,
    /// Calls that were not told apart, as their threads had no room for more.
    pub others: u64,
    /// What the tracepoints told and was not counted, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drops: Vec<Dropped>,
    /// Rings of threads that waited for each other when the trace ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deadlocks: Vec<Deadlock>,
}

/// A ring of threads: each waits for a lock that the next one holds, and the last for one that the first holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deadlock {
    /// Their process.
    pub pid: u32,
    /// Their waits, in the ring's order.
    pub waits: Vec<Waiting>,
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
    /// Where the budget did not pay for timing all that slept: so many were timed, by chance. Then the
    /// total, the histogram and the blame are estimates, for which each of these stands for others;
    /// all other numbers are exact, as they are where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timed: Option<u64>,
    /// Of a rwlock: how many threads had it to read when waits began. Nothing where it was none, and where only
    /// the kernel's tracepoints told of the waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<Readers>,
    /// How long those that slept did.
    pub histogram: Option<Histogram>,
    /// From where waits were ended, those that ended the most time first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blame: Vec<Blame>,
    /// Waits that began before the trace; none of them is in any other number of the row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early: Option<Early>,
}

/// Waits that began before the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Early {
    /// How many.
    pub waits: u64,
    /// How many of them went on when the trace ended.
    pub unfinished: u64,
    /// How long the oldest one had slept when the trace began, in nanoseconds: at least, as a thread that is stopped or gets a
    /// signal begins anew.
    pub before_ns: u64,
    /// How long all slept, as long as was seen.
    pub total_ns: u64,
}

impl Early {
    /// Adds others.
    pub fn add(&mut self, more: &Early) {
        self.waits = self.waits.saturating_add(more.waits);
        self.unfinished = self.unfinished.saturating_add(more.unfinished);
        self.before_ns = self.before_ns.max(more.before_ns);
        self.total_ns = self.total_ns.saturating_add(more.total_ns);
    }
}

/// How long a lock was held that was taken from one call site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hold {
    /// The lock.
    pub lock: String,
    /// From where it was taken.
    pub callsite: String,
    /// How often.
    pub count: u64,
    /// Nanoseconds.
    pub total_ns: u64,
    /// How long each time.
    pub histogram: Option<Histogram>,
    /// It was on when the trace began, and is not among those that are counted: "total_ns" is a lower bound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_at_least: bool,
}

/// How many threads had a rwlock to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Readers {
    /// At the beginning of a wait, on average.
    pub average: f64,
    /// At that of any.
    pub most: u64,
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
