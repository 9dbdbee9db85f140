//! The session: all observations, and their cost.
//!
//! The driver writes a [`Session`] and every report reads it. It is plain data without behaviour, and the only
//! contract between the two, so that a session from one machine prints on another. `--json` prints its serialized
//! form (see [`Session`] for the keys). Keys may be added, but existing keys must keep their names and meanings:
//!
//! ```text
//! {"tiptoe": VERSION, "command": [WORD…],
//!  "events": [{"event": SPEC, "via": "agent"|"kernel", "count", "lost", "at_least"?: true,
//!              "time_enabled_ns", "time_running_ns", "cost_ns",
//!              ENDS?, TIMES?, RECORDS?, "names"?: […], "notes"?: […],
//!              "by"?: [{"key": WHOSE, "count", ENDS?, TIMES?}…]}…],
//!  "cost": {"fraction", "low", "high", "basis": "estimated"|"measured",
//!           "hits", "unit_ns", "unit_low_ns", "unit_high_ns",
//!           "rejected_unit_ns"?, "calibrated"?: "now"|"cached",
//!           "forks"?: {"count", "unit_ns"}, "programs"?: PROGRAMS},
//!  "targets": [{"pid", "comm", "address_space"?: SPACE}…], "started_unix_ns", "duration_ns", "cpu_ns",
//!  "own_cpu_ns"?, "longest_stop_ns"?, "budget"?, "slower_ns"?, "under"?: FUNCTION, "refusals"?: [{"event", "reason"}…], "notes"?: […],
//!  "intervals"?: [{"at_ns", "duration_ns", "counts": [{"key", "count", "at_least"?: true}…]}…],
//!  "now"?: NOW, "locks"?: LOCKS, "waits"?: WAITS, "watch"?: WATCH, "stat"?: STAT,
//!  "scopes"?: SCOPES, "cpus"?: NUMBER}
//! ```
//!
//! ENDS are the keys of [`Ends`]: all of them if calls were followed from entry to return (`uretprobe:` and
//! `--latency`), otherwise none. TIMES are those of [`Latency`]: all of them if such calls were timed too
//! (`--latency`), otherwise none:
//!
//! ```text
//! ENDS   "returns", "left", "inside", "only_counted"
//! TIMES  "total_ns", "self_ns",
//!        "histogram": {"scale": 3, "zero_count", "offset", "counts": […],
//!                      "p50_ns", "p90_ns", "p99_ns", "max_ns"}
//! ```
//!
//! RECORDS are "recorded", "records_lost" and "only_counted", with `--record`; they add up to the "count". Each
//! recorded call is a line of its own before the report: the keys of [`Call`], `{"at_ns", "tid", "comm", "event",
//! "arg0"?, "arg1"?, "are_registers"?: true}`.
//!
//! The four of ENDS add up to all entered calls. That sum is the "count" of a timed event; the "count" of a
//! `uretprobe:` is its "returns".
//!
//! SPACE are the keys of [`AddressSpace`], for a process with an agent: `{"speculative", "locked", "missed", "changes",
//! "readings", "corrected", "mappings", "bytes"}`.
//!
//! LOCKS are the keys of [`Locks`], of `tiptoe lock` without `--kernel`: its table's rows, with the histogram of
//! TIMES for the waits that slept.
//!
//! ```text
//! LOCKS  {"by": WHAT, "via": "agent"|"kernel", "rows": [{"lock", "type", "mode"?, "idle", "callsite", "callsites",
//!          "episodes", "slept", "at_once", "timed_out", "interrupted", "left"?, "total_ns",
//!          "timed"?,
//!          "readers"?: {"average", "most"}, "histogram", "blame"?: [{"callsite", "count", "total_ns"}…],
//!          "holders"?: [{"callsite"|"thread"|"readers": true, "total_ns"}…], "unknown_ns"?,
//!          "early"?: {"waits", "unfinished", "before_ns", "total_ns"}}…],
//!         "holds"?: [{"lock", "callsite", "count", "total_ns", "histogram", "is_at_least"?}…],
//!         "waits", "wakes", "unfinished", "others", "drops"?: [{"reason", "count"}…],
//!         "deadlocks"?: [{"pid", "waits": [keys of a wait of NOW]}…]}
//! ```
//!
//! NOW are the keys of [`Now`], of `tiptoe lock --now`: `{"waits": [{"tid", "comm", "lock", "type",
//! "mode"?, "idle", "callsite", "asleep_ns"?, "readers"?, "holder"?,
//! "holder_comm"?}…], "deadlocks"?: [[TID…]…]}`.
//!
//! WAITS are the keys of [`Waits`], of `tiptoe lock --kernel`: the rows of its table, with the histogram of TIMES.
//! The session then has one event for all waits, such as `klock:mmap_lock`; its "lost" is the sum of the drops.
//!
//! ```text
//! WAITS  {"by": WHAT, "rows": [{"type", "mode": "read"|"write"|"exclusive",
//!          "outcome": "acquired"|"failed"|"downgraded", "key"?, "callsite"?, "callsites",
//!          "callers"?: […], "count", "total_ns", "histogram": {…}}…],
//!         "unfinished", "drops"?: [{"reason", "count"}…]}
//! ```
//!
//! WATCH are the keys of [`Watch`], of `tiptoe watch`. Each variable is also an event, such as
//! `mem:redis-server:server.clients:8:w`. With `--trace` each access is a line of its own: the keys of [`Access`],
//! `{"at_ns", "tid", "comm", "variable", "at", "in_kernel", "old", "new", "racy"}`.
//!
//! ```text
//! WATCH  {"by": "comm"|"thread",
//!         "variables": [{"name", "address", "len", "access": "w"|"rw"|"x", "hits", "count", "at_least",
//!          "watched_ns"?}…],
//!         "rows": [{"variable", "at", "in_kernel", "comm", "tid"?, "count", "changed", "old_unknown", "racy", "first_ns",
//!          "last_ns", "last_old", "last_new", "values"?: [{"value", "count"}…], "other_values",
//!          "stacks"?: [{"callers": […], "is_partial", "count"}…]}…],
//!         "form": {"by": "cpu"|"thread"|"agent", "why"?, "attached"?: {"threads", "again", "without", "took_ns"}},
//!         "reservations"?: [{"side": "thread"|"cpu", "reservations", "holds", "waited", "waited_ns"}…],
//!         "foreign", "sees_kernel", "allowance"?: {"hits", "window_ns", "windows", "used_up"},
//!         "drops"?: [{"reason", "count"}…]}
//! ```
//!
//! STAT are the keys of [`Stat`], of `tiptoe stat`. "value" is in "unit", "ns" for clocks. It is extrapolated from
//! the time that the event counted to the time for which it was requested; over several runs it is the mean. With
//! `--interval` each [`Counts`] is a line of its own when it is over, and "intervals" is their number.
//!
//! ```text
//! STAT   {"whom", "runs", "counts": [COUNT…], "elapsed_ns", "elapsed_spread"?, "user_ns"?, "sys_ns"?, "intervals"?,
//!         "switches", "switch_ns", "cgroup_switches", "cgroup_switch_ns", "lives", "life_ns", "rounds", "round_ns",
//!         "tracepoint_hits", "tracepoint_ns"}
//! COUNT  {"event", "cgroup"?, "is_removed"?: true, "cpu"?, "state": "counted"|"not-counted"|"not-supported", "value", "unit", "time_enabled_ns",
//!          "time_running_ns", "spread"?}
//! ```
//!
//! SCOPES are the keys of [`Scopes`], of `tiptoe stat --by scope`. With `--interval` each [`ScopeCounts`] is a line of
//! its own when it is over: `{"at_ns", "duration_ns", "events", "rows"}`. "intervals" is their number.
//!
//! ```text
//! SCOPES {"events": [EVENT…], "rows": [{"name", "entries", "wall_ns"?, "cpu_ns"?, "counts": [NUMBER…]}…],
//!         "intervals"?}
//! ```
//!
//! "cpus" is present with `-a`. PROGRAMS is the time of tiptoe's BPF programs: for the target by their own clock, and
//! for all processes as the kernel measured it, if this user may enable that: `{"runs", "run_ns", "all_runs"?,
//! "all_run_ns"?}`. "low" and "high" are these two.
//!
//! With `--interval`, each item of `intervals` is also printed as a line of its own when it is over; the report comes
//! last.
//!
//! WHOSE is `"TID COMM"`, `"COMM"`, `"arg0=VALUE"` (decimal, or `0x…`) or a scope's name, according to `--by`. It is
//! `"(other threads)"`, `"(other values)"` or `"(other scopes)"` for those that found no room of their own.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cost;
mod ends;
mod event;
mod latency;
mod lock;
mod now;
mod records;
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
pub use lock::{Blame, Deadlock, Early, Hold, Holder, Lock, Locks, Readers};
pub use now::{Now, Waiting};
pub use records::{Call, Records};
pub use scope::{Scope, ScopeCounts, Scopes};
pub use space::AddressSpace;
pub use stat::{Count, CountState, Counts, Stat};
pub use tiptoe_event::Via;
pub use wait::{Dropped, Mode, Outcome, Wait, Waits};
pub use watch::{
    Access, Accesses, Allowance, Attached, Placement, Reservations, Stack, Value, Variable, Watch,
};

/// One run of the driver. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The version of tiptoe that made it.
    pub tiptoe: String,
    /// The command line that was started, or the first process's own.
    pub command: Vec<String>,
    /// The requested events, resolved.
    pub events: Vec<Event>,
    /// Their cost for the target.
    pub cost: Cost,
    /// The traced processes.
    pub targets: Vec<Process>,
    /// The start, since the Unix epoch.
    pub started_unix_ns: u64,
    /// The length of the trace.
    pub duration_ns: u64,
    /// The CPU time of the targets during the trace.
    pub cpu_ns: u64,
    /// The CPU time of tiptoe and its helpers, from before the injection until the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_cpu_ns: Option<u64>,
    /// The longest time for which a thread of a target was stopped, or borrowed for the injection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_stop_ns: Option<u64>,
    /// The largest share of `cpu_ns` that tracing may take (1.0 is all of it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// With `--slower`: calls that took no longer are in no time and no histogram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower_ns: Option<u64>,
    /// With `--under`: the function inside which calls had to be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// With `--now`: the waits at one moment, and nothing else.
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
    /// With `-a`: the number of traced CPUs; `cpu_ns` is then their time, idle or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Requests that could not be fulfilled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// Sentences that the reader needs before trusting the numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The counts of each interval, if requested.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

impl Session {
    /// Returns an empty session of this version.
    pub fn new(command: Vec<String>) -> Session {
        Session {
            tiptoe: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            ..Session::default()
        }
    }

    /// Returns the number of all counted hits.
    pub fn total(&self) -> u64 {
        self.events
            .iter()
            .fold(0, |sum, event| sum.saturating_add(event.count))
    }
}

/// One traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its id in tiptoe's PID namespace.
    pub pid: u32,
    /// Its name in the kernel.
    pub comm: String,
    /// Its address space, as its agent keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_space: Option<AddressSpace>,
}

/// The counts of one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// Its end, since the start of the session.
    pub at_ns: u64,
    /// Its length.
    pub duration_ns: u64,
    /// The events that were hit.
    pub counts: Vec<CountPart>,
}
