//! Counts of events with perf's names.

use serde::{Deserialize, Serialize};

/// The counts of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stat {
    /// The target in perf's words: `'CMD ARG…'`, `process id '42'` or `'system wide'`.
    pub whom: String,
    /// How often the command ran; 1 without a command.
    pub runs: u32,
    /// Each event, in the order of the request. With `--per-cpu` each is repeated for each CPU; with
    /// `--for-each-cgroup` the whole system comes first, then each cgroup.
    pub counts: Vec<Count>,
    /// The counting time, the mean of the runs.
    pub elapsed_ns: f64,
    /// The relative standard deviation of that mean; `None` for one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_spread: Option<f64>,
    /// The command's CPU time in user space, if it ended: the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ns: Option<f64>,
    /// The command's CPU time in the kernel, if it ended: the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sys_ns: Option<f64>,
    /// The number of intervals, if requested. Each was printed when it was over ([`Counts`]) and is not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<u64>,
    /// Context switches. Counting makes each slower.
    pub switches: u64,
    /// The added cost of one switch.
    pub switch_ns: f64,
    /// Switches among these to another cgroup, if counts are by cgroup.
    pub cgroup_switches: u64,
    /// The added cost of one such switch.
    pub cgroup_switch_ns: f64,
    /// Births, ends and moves of tasks that were handled, if counting is by tasks.
    pub lives: u64,
    /// The cost of one.
    pub life_ns: f64,
    /// Rounds over all tasks.
    pub rounds: u64,
    /// The cost of one round.
    pub round_ns: f64,
    /// Hits of counted tracepoints.
    pub tracepoint_hits: u64,
    /// The added cost of one hit.
    pub tracepoint_ns: f64,
}

/// The counts of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// The interval's end, since the start.
    pub at_ns: u64,
    /// The interval's length.
    pub duration_ns: u64,
    /// As in [`Stat`].
    pub counts: Vec<Count>,
}

/// One event's count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Count {
    /// The event as requested, with `:u` if this user may not count in the kernel.
    pub event: String,
    /// The cgroup, with its descendants, by its path without the first `/`; `None` for the whole target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// Whether that cgroup was removed, so that another one may have its path.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    /// The CPU, with `--per-cpu`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Whether it was counted.
    pub state: CountState,
    /// The count, extrapolated to the whole time for which it was requested.
    pub value: f64,
    /// The unit: empty for events, "ns" for clocks.
    pub unit: String,
    /// The time for which it was requested, over all CPUs or threads.
    pub time_enabled_ns: u64,
    /// The part of that time for which it counted.
    pub time_running_ns: u64,
    /// The relative standard deviation of the mean of runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

/// Whether an event was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountState {
    /// It was counted.
    #[default]
    Counted,
    /// It was not: no task ran, or no counter was ever free.
    NotCounted,
    /// This machine does not have it.
    NotSupported,
}
