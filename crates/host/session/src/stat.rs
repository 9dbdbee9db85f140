//! Counts of events with perf's names.

use serde::{Deserialize, Serialize};

/// The counts of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Stat {
    /// The target in perf's words: `'CMD ARG…'`, `process id '42'` or `'system wide'`.
    pub whom: String,
    /// The number of runs of the command; 1 without a command.
    pub runs: u32,
    /// The events, in the order of the request. `--per-cpu` repeats each event for each CPU. `--for-each-cgroup`
    /// repeats all events: first for the whole system, then for each cgroup.
    pub counts: Vec<Count>,
    /// The counting time, the mean of the runs.
    pub elapsed_ns: f64,
    /// The relative standard deviation of `elapsed_ns`; absent for one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_spread: Option<f64>,
    /// The command's CPU time in user space, the mean of the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ns: Option<f64>,
    /// The command's CPU time in the kernel, the mean of the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sys_ns: Option<f64>,
    /// The number of intervals, if requested. Intervals are printed as [`Counts`], and not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<u64>,
    /// The number of context switches, which counting slows down.
    pub switches: u64,
    /// The time that counting added to each of `switches`.
    pub switch_ns: f64,
    /// Context switches to another cgroup, if counts are by cgroup.
    pub cgroup_switches: u64,
    /// The time that counting added to each of `cgroup_switches`.
    pub cgroup_switch_ns: f64,
    /// Starts, ends and moves of tasks that tiptoe handled, if it counts by tasks' own fields.
    pub lives: u64,
    /// The cost of one of `lives`.
    pub life_ns: f64,
    /// How often tiptoe read the counts of all tasks.
    pub rounds: u64,
    /// The cost of reading all tasks once.
    pub round_ns: f64,
    /// Hits of counted tracepoints.
    pub tracepoint_hits: u64,
    /// The time that counting added to each of `tracepoint_hits`.
    pub tracepoint_ns: f64,
}

/// The counts of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Counts {
    /// The interval's end, since the start.
    pub at_ns: u64,
    /// The interval's length.
    pub duration_ns: u64,
    /// The counts, as in [`Stat`].
    pub counts: Vec<Count>,
}

/// One event's count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Count {
    /// The requested name, with `:u` if this user may not count in the kernel.
    pub event: String,
    /// The cgroup's path without the first `/`; absent for the whole target. The count includes the descendants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Whether the cgroup was removed. A later cgroup may have the same path.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    /// The CPU, with `--per-cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Whether the event was counted.
    pub state: CountState,
    /// The count, extrapolated to the whole requested time.
    pub value: f64,
    /// "ns" for clocks, otherwise empty.
    pub unit: String,
    /// The time for which the event was requested, over all CPUs or threads.
    pub time_enabled_ns: u64,
    /// The part of `time_enabled_ns` in which the event counted.
    pub time_running_ns: u64,
    /// The relative standard deviation of the mean over the runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

/// Whether an event was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CountState {
    /// The event was counted.
    #[default]
    Counted,
    /// No task ran, or no counter was ever free.
    NotCounted,
    /// This machine does not have the event.
    NotSupported,
}
