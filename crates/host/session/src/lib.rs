//! The session: what was observed, with what cost.
//!
//! A [`Session`] is what the driver writes and every report reads. It is plain
//! data without behaviour of its own, and the only contract between the two, so
//! a session that was taken on one machine prints on another. Its serialized
//! form is also the JSON that `--json` prints (see [`Session`] for the keys):
//! keys may be added, those that exist keep their names and meanings:
//!
//! ```text
//! {"tiptoe": VERSION, "command": [WORD…],
//!  "events": [{"event": SPEC, "via": "agent"|"kernel", "count", "lost", "at_least"?: true,
//!              "time_enabled_ns", "time_running_ns", "cost_ns",
//!              ENDS?, TIMES?, RECORDS?, "names"?: […], "notes"?: […],
//!              "by"?: [{"key": WHOSE, "count", ENDS?, TIMES?}…]}…],
//!  "cost": {"fraction", "low", "high", "basis": "estimated"|"measured",
//!           "hits", "unit_ns", "unit_low_ns", "unit_high_ns",
//!           "rejected_unit_ns"?, "calibrated"?: "now"|"cached", "programs"?: PROGRAMS},
//!  "targets": [{"pid", "comm", "address_space"?: SPACE}…], "started_unix_ns", "duration_ns", "cpu_ns",
//!  "own_cpu_ns"?, "longest_stop_ns"?, "budget"?, "slower_ns"?, "under"?: FUNCTION, "refusals"?: [{"event", "reason"}…], "notes"?: […],
//!  "intervals"?: [{"at_ns", "duration_ns", "counts": [{"key", "count", "at_least"?: true}…]}…],
//!  "now"?: NOW, "locks"?: LOCKS, "waits"?: WAITS, "watch"?: WATCH, "stat"?: STAT,
//!  "scopes"?: SCOPES, "cpus"?: NUMBER}
//! ```
//!
//! ENDS are the keys of [`Ends`], all of them where calls were followed from
//! entry to return (`uretprobe:` and `--latency`) and else none; TIMES are those
//! of [`Latency`], all of them where such calls were timed too (`--latency`):
//!
//! ```text
//! ENDS   "returns", "left", "inside", "only_counted"
//! TIMES  "total_ns", "self_ns",
//!        "histogram": {"scale": 3, "zero_count", "offset", "counts": […],
//!                      "p50_ns", "p90_ns", "p99_ns", "max_ns"}
//! ```
//!
//! RECORDS are "recorded", "records_lost" and "only_counted", where `--record` asked for
//! records; they add up to the "count". Each recorded call is a line of its own, in front
//! of the report: the keys of [`Call`].
//!
//! The four of ENDS add up to all calls that were entered. That is the "count"
//! of a timed event; the "count" of a `uretprobe:` is its "returns".
//!
//! SPACE are the keys of [`AddressSpace`], of a process that had an agent.
//!
//! LOCKS are the keys of [`Locks`], of `tiptoe lock` without `--kernel`: its table's rows, with
//! the histogram of TIMES for the waits that slept.
//!
//! ```text
//! LOCKS  {"by": WHAT, "via": "agent"|"kernel", "rows": [{"lock", "type", "mode"?, "idle", "callsite", "callsites",
//!          "episodes", "slept", "at_once", "timed_out", "interrupted", "total_ns",
//!          "histogram", "blame"?: [{"callsite", "count", "total_ns"}…],
//!          "early"?: {"waits", "unfinished", "before_ns", "total_ns"}}…],
//!         "holds"?: [{"lock", "callsite", "count", "total_ns", "histogram", "is_at_least"?}…],
//!         "waits", "wakes", "unfinished", "others", "drops"?: [{"reason", "count"}…],
//!         "deadlocks"?: [{"pid", "waits": [keys of a wait of NOW]}…]}
//! ```
//!
//! NOW are the keys of [`Now`], of `tiptoe lock --now`: `{"waits": [{"tid", "comm", "lock", "type",
//! "mode"?, "idle", "callsite", "holder"?}…], "deadlocks"?: [[TID…]…]}`.
//!
//! WAITS are the keys of [`Waits`], of `tiptoe lock --kernel`: the rows of its table, with the histogram
//! of TIMES. The session's only event is then all of them, such as `klock:mmap_lock`, its "lost" the
//! sum of the drops.
//!
//! ```text
//! WAITS  {"by": WHAT, "rows": [{"type", "mode": "read"|"write"|"exclusive",
//!          "outcome": "acquired"|"failed"|"downgraded", "key"?, "callsite"?, "callsites",
//!          "callers"?: […], "count", "total_ns", "histogram": {…}}…],
//!         "unfinished", "drops"?: [{"reason", "count"}…]}
//! ```
//!
//! WATCH are the keys of [`Watch`], of `tiptoe watch`. Each variable is an event, too, such as
//! `mem:redis-server:server/8,w/`.
//!
//! ```text
//! WATCH  {"by": "comm"|"thread",
//!         "variables": [{"name", "address", "len", "access": "w"|"rw"|"x", "hits", "count", "at_least",
//!          "watched_ns"?}…],
//!         "rows": [{"variable", "at", "in_kernel", "comm", "tid"?, "count", "changed", "racy", "first_ns", "last_ns",
//!          "last_old", "last_new", "values"?: [{"value", "count"}…], "other_values",
//!          "stacks"?: [{"callers": […], "is_partial", "count"}…]}…],
//!         "form": {"by": "cpu"|"thread", "why"?, "attached"?: {"threads", "again", "without", "took_ns"}},
//!         "reservations"?: [{"side": "thread"|"cpu", "reservations", "holds", "waited", "waited_ns"}…],
//!         "foreign", "sees_kernel", "allowance"?: {"hits", "window_ns", "windows", "used_up"},
//!         "drops"?: [{"reason", "count"}…]}
//! ```
//!
//! STAT are the keys of [`Stat`], of `tiptoe stat`. "value" is in "unit", "ns" of clocks, and stands for all of the
//! time that the event was wanted, whatever part of that it counted; of more than one run it is the mean. With
//! `--interval` each [`Counts`] is a line of its own, when it is over, and "intervals" says how many there were.
//!
//! ```text
//! STAT   {"whom", "runs", "counts": [COUNT…], "elapsed_ns", "elapsed_spread"?, "user_ns"?, "sys_ns"?, "intervals"?,
//!         "switches", "switch_ns", "tracepoint_hits", "tracepoint_ns"}
//! COUNT  {"event", "cpu"?, "state": "counted"|"not-counted"|"not-supported", "value", "unit", "time_enabled_ns",
//!          "time_running_ns", "spread"?}
//! ```
//!
//! SCOPES are the keys of [`Scopes`], of `tiptoe stat --by scope`.
//!
//! ```text
//! SCOPES {"events": [EVENT…], "rows": [{"name", "entries", "wall_ns"?, "cpu_ns"?, "counts": [NUMBER…]}…]}
//! ```
//!
//! "cpus" is there with `-a`. PROGRAMS is what tiptoe's BPF programs took of the target, by their own
//! clock, and of all processes, as the kernel measured them, where this user may have it do so:
//! `{"runs", "run_ns", "all_runs"?, "all_run_ns"?}`. "low" and "high" are these two.
//!
//! With `--interval`, each item of `intervals` is printed as a line of its own, too,
//! when it is over; the report comes last.
//!
//! WHOSE is `"TID COMM"`, `"COMM"`, `"arg0=VALUE"` (decimal, or `0x…`) or a scope's name, as `--by` asked for;
//! or `"(other threads)"`, `"(other values)"`, `"(other scopes)"` for what there was no room to tell apart.
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

pub use cost::{Basis, Calibration, Cost, Programs};
pub use ends::Ends;
pub use event::{Event, OTHER_VALUES, Part, Refusal, argument_key};
pub use latency::{Histogram, Latency};
pub use lock::{Blame, Deadlock, Early, Hold, Lock, Locks, Readers};
pub use now::{Now, Waiting};
pub use records::{Call, Records};
pub use scope::{Scope, Scopes};
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
    /// The version of tiptoe that took it.
    pub tiptoe: String,
    /// The command line that was traced: the one started, or the first process's own.
    pub command: Vec<String>,
    /// What was asked for, resolved.
    pub events: Vec<Event>,
    /// What all of it cost the target.
    pub cost: Cost,
    /// The processes that were traced.
    pub targets: Vec<Process>,
    /// When it began, since the Unix epoch.
    pub started_unix_ns: u64,
    /// How long it was traced.
    pub duration_ns: u64,
    /// The CPU time that the targets used in that time.
    pub cpu_ns: u64,
    /// The CPU time that tiptoe itself used, with its helpers, from before it went in until the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_cpu_ns: Option<u64>,
    /// The longest time for which a thread of a target was stopped, or borrowed to bring the agent in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_stop_ns: Option<u64>,
    /// The largest share of that which tracing might take (1.0 is all of it),
    /// where there was a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Calls that took no longer than this are in no time and no histogram,
    /// where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slower_ns: Option<u64>,
    /// The function below which calls had to be made, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// Who waits for whom at one moment, where that was asked for: there is no more then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Now>,
    /// What was seen of contended locks, where those of programs were watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locks: Option<Locks>,
    /// What was waited for, where the kernel's locks were watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// What was seen of variables, where these were watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<Watch>,
    /// What was counted, where events were counted by perf's names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stat: Option<Stat>,
    /// What was done in scopes, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// How many CPUs were traced, where it was the whole system: `cpu_ns` is their time, idle or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// What was asked for and not done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// What the reader should know before trusting the numbers, each one sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What was counted in each interval, where intervals were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
}

impl Session {
    /// An empty session of this version, of the given command line.
    pub fn new(command: Vec<String>) -> Session {
        Session {
            tiptoe: env!("CARGO_PKG_VERSION").to_owned(),
            command,
            ..Session::default()
        }
    }

    /// All hits that were counted.
    pub fn total(&self) -> u64 {
        self.events
            .iter()
            .fold(0, |sum, event| sum.saturating_add(event.count))
    }
}

/// One process that was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// Its id in tiptoe's pid namespace.
    pub pid: u32,
    /// Its name as the kernel has it.
    pub comm: String,
    /// What its agent knew of its address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_space: Option<AddressSpace>,
}

/// What was counted in one interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interval {
    /// When it ended, since the start of the session.
    pub at_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// The events that were hit, with their counts.
    pub counts: Vec<Part>,
}
