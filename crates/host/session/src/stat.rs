//! What was counted of events by perf's names.

use serde::{Deserialize, Serialize};

/// Counts of a whole session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stat {
    /// Who was counted, as perf says it: `'CMD ARG…'`, `process id '42'` or `'system wide'`.
    pub whom: String,
    /// How often the command ran; 1 where there was none.
    pub runs: u32,
    /// Each event, in the order in which they were asked for; with `--per-cpu` each on each CPU, with
    /// `--for-each-cgroup` first of the whole system, then of each cgroup.
    pub counts: Vec<Count>,
    /// How long was counted, the mean of the runs.
    pub elapsed_ns: f64,
    /// How far off that mean may be, as a part of it (its standard deviation), where there were more runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_spread: Option<f64>,
    /// The command's CPU time in user space, where it ended: the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_ns: Option<f64>,
    /// And in the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sys_ns: Option<f64>,
    /// How many intervals were told, each when it was over ([`Counts`]), where intervals were asked for: these are not
    /// kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<u64>,
    /// Switches from one task to another, at which counting costs.
    pub switches: u64,
    /// What one cost more.
    pub switch_ns: f64,
    /// Of these, switches to another cgroup, where cgroups are told apart; and what one cost more.
    pub cgroup_switches: u64,
    /// As `switch_ns`, of these.
    pub cgroup_switch_ns: f64,
    /// Births, ends and moves of tasks that were looked at, where tasks are asked for what they did.
    pub lives: u64,
    /// What one cost.
    pub life_ns: f64,
    /// How often all tasks were asked.
    pub rounds: u64,
    /// What that cost each time.
    pub round_ns: f64,
    /// Tracepoints that were passed while they were counted.
    pub tracepoint_hits: u64,
    /// What one cost more.
    pub tracepoint_ns: f64,
}

/// What was counted in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// When it ended, since the start.
    pub at_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// As in [`Stat`].
    pub counts: Vec<Count>,
}

/// One event's count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Count {
    /// As it was asked for; with `:u` where this user may not count in the kernel.
    pub event: String,
    /// In which cgroup, with those within it, by its path without the first `/`; nothing is the whole system, or
    /// whoever was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// That cgroup was removed; another one may have its path by now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
    /// On which CPU, where each is told for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Whether it was counted.
    pub state: CountState,
    /// How much, for all of the time that it was wanted.
    pub value: f64,
    /// Of what: nothing is events, "ns" of clocks.
    pub unit: String,
    /// For how long it was wanted, all CPUs or threads together.
    pub time_enabled_ns: u64,
    /// For how long of that it counted.
    pub time_running_ns: u64,
    /// How far off the mean of runs may be, as a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

/// Whether an event was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountState {
    /// It was.
    #[default]
    Counted,
    /// It could have been: nothing ran, or no counter was free all the time.
    NotCounted,
    /// This machine does not have it.
    NotSupported,
}
