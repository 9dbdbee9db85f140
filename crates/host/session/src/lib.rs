//! The session: all observations, and their cost.
//!
//! tiptoe-collector fills a [`Session`], tiptoe-report prints it, and `--json` prints it as it is. A report needs
//! only the session, so a session from one machine can be printed on another. Keys may be added, but existing keys
//! must keep their names and meanings, because programs read them.
//!
//! The documentation of public items is for users, because `cargo run -p xtask -- schema` makes the JSON Schema and the
//! book's page of keys from it.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cost;
mod ends;
mod event;
mod latency;
mod lock;
mod note;
mod now;
mod records;
#[cfg(test)]
mod schema;
mod scope;
mod space;
mod stat;
mod wait;
mod watch;
mod words;

use serde::{Deserialize, Serialize};

pub use cost::{Basis, Calibration, Cost, Forks, Programs};
pub use ends::Ends;
pub use event::{CountPart, Event, OTHER_VALUES, Refusal, argument_key};
pub use latency::{Histogram, Latency};
pub use lock::{Blame, Deadlock, EarlyWaitSums, Hold, Holder, Lock, Locks, Readers, Unfinished};
pub use note::{
    CgroupFault, EndCause, EventNote, FunctionNote, KernelNote, LockNote, Note, ProcessNote,
    ScopeNote, Severity, StatNote, VariableEnd, WatchNote,
};
pub use now::{Now, WaitingThread};
pub use records::{Call, Records};
pub use scope::{Scope, ScopeCounts, Scopes};
pub use space::AddressSpace;
pub use stat::{Count, CountState, Counts, Stat};
pub use tiptoe_event::Via;
pub use wait::{Dropped, Mode, Outcome, Wait, Waits};
pub use watch::{
    Access, Accesses, Allowance, Attachment, Placement, Reservations, Stack, Value, Variable, Watch,
};

/// The version of the session's keys. It must grow if a key changes its meaning, or if a program that ignores a new
/// key would misread the session.
pub const FORM: u32 = 2;

/// One run of tiptoe. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Session {
    /// The version of tiptoe that made the session.
    pub tiptoe: String,
    /// The version of the session's keys, which grows if a key gets another meaning; 0 in sessions without this key.
    pub version: u32,
    /// The command that tiptoe started, or the command line of the first traced process.
    pub command: Vec<String>,
    /// The requested events, with their results.
    pub events: Vec<Event>,
    /// The cost of tracing for the target.
    pub cost: Cost,
    /// The traced processes.
    pub targets: Vec<Process>,
    /// The start, since the Unix epoch.
    pub started_unix_ns: u64,
    /// The length of the trace.
    pub duration_ns: u64,
    /// The CPU time of the targets during the trace.
    pub cpu_ns: u64,
    /// The CPU time of tiptoe and its helper processes, from before tiptoe attached until the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_cpu_ns: Option<u64>,
    /// The longest time for which a target's thread was stopped, or ran the code that loads tiptoe's library (agent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_stop_ns: Option<u64>,
    /// The largest share of `cpu_ns` that tracing may take (1.0 is all of it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// With `--slower`: the limit. Times and histograms contain only the calls that took longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower_ns: Option<u64>,
    /// With `--under`: the function. Only calls made inside it were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// With `--now`, which counts nothing: the waits at one moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Now>,
    /// Contended locks of programs, if watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
    /// Waits for the kernel's locks, if watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Accesses to variables, if watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// Counts of events with perf's names, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<Stat>,
    /// Counts by scope, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// With `-a`: the number of traced CPUs. `cpu_ns` is then the whole time of these CPUs, idle or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Requests that could not be fulfilled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// What the reader must know before trusting the numbers.
    #[serde(rename = "typed_notes", skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// The notes in words, which the report makes from `typed_notes` for JSON. An old session has only this key.
    #[serde(rename = "notes", skip_serializing_if = "Vec::is_empty")]
    pub sentences: Vec<String>,
    /// The counts of each interval, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

impl Session {
    /// Returns an empty session of this version.
    pub fn new(command: Vec<String>) -> Session {
        Session {
            tiptoe: env!("CARGO_PKG_VERSION").to_owned(),
            version: FORM,
            command,
            ..Session::default()
        }
    }

    /// Returns the number of counted hits.
    pub fn total(&self) -> u64 {
        self.events
            .iter()
            .fold(0, |sum, event| sum.saturating_add(event.count))
    }
}

/// One traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Process {
    /// The process id in tiptoe's PID namespace.
    pub pid: u32,
    /// The process's name in the kernel.
    pub comm: String,
    /// How the agent used its table of the process's mappings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_space: Option<AddressSpace>,
}

impl From<(u32, String)> for Process {
    fn from((pid, comm): (u32, String)) -> Process {
        Process {
            pid,
            comm,
            address_space: None,
        }
    }
}

/// The counts of one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Interval {
    /// The interval's end, since the start of the session.
    pub at_ns: u64,
    /// The interval's length.
    pub duration_ns: u64,
    /// The hits of each event that was hit in the interval.
    pub counts: Vec<CountPart>,
}
