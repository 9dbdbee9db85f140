use core::fmt;

/// An event, by its number in its PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event(pub u32);

/// A cgroup on a CPU, or a scope in a thread. See [`crate::Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

impl Label {
    /// The label that contains all others.
    pub const ROOT: Label = Label(0);
}

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// Everything that this context's CPU or thread runs.
    System,
    /// What runs with this label, or with a label below it.
    Label(Label),
    /// The current task. Its events move with the task.
    Task,
}

/// Whether a group may lose its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Counts whenever its target runs. If it finds no slots, it is in error ([`State::Error`]).
    Pinned,
    /// Takes turns in the slots that pinned groups leave free.
    Flexible,
}

/// A group of events that count together or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The PMU's index.
    pub pmu: usize,
    /// What the group counts.
    pub target: Target,
    /// Whether the group may lose its slots.
    pub priority: Priority,
    /// The events; each needs a slot.
    pub events: &'a [Event],
}

/// An added group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// The PMU's index.
    pub pmu: usize,
    /// What the group counts.
    pub target: Target,
    pub(crate) number: u32,
}

/// Why a group cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddError {
    /// The group has no events.
    Empty,
    /// The context has no such PMU.
    NoPmu,
    /// The tree has no such label.
    NoLabel,
    /// The group has more events than slots.
    TooLarge {
        /// The number of events.
        events: usize,
        /// The number of slots.
        slots: u32,
    },
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddError::Empty => f.write_str("a group without events"),
            AddError::NoPmu => f.write_str("no such PMU"),
            AddError::NoLabel => f.write_str("no such cgroup or scope"),
            AddError::TooLarge { events, slots } => {
                let plural = if *slots == 1 { "" } else { "s" };
                write!(f, "a group of {events} events for {slots} slot{plural}")
            }
        }
    }
}

impl core::error::Error for AddError {}

/// A group's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// The group is switched off.
    Off,
    /// The group's target does not run, or other groups have the slots.
    Waiting,
    /// The group counts.
    Running,
    /// Other pinned groups have the slots of this pinned group, which stays in error until it is enabled.
    Error,
}

/// A group's times while its target ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Times {
    /// The time in which the group was neither off nor in error.
    pub enabled_ns: u64,
    /// The time in which the group counted.
    pub running_ns: u64,
}

impl Times {
    /// Returns how long the group was enabled but did not count.
    pub fn missed_ns(self) -> u64 {
        self.enabled_ns.saturating_sub(self.running_ns)
    }

    /// Scales a count to the enabled time; `None` if the group never counted.
    pub fn scaled(self, count: u64) -> Option<u64> {
        if self.missed_ns() == 0 {
            return Some(count);
        }
        let wide = u128::from(count) * u128::from(self.enabled_ns);
        let scaled = wide.checked_div(u128::from(self.running_ns))?;
        Some(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

impl core::ops::AddAssign for Times {
    fn add_assign(&mut self, other: Times) {
        self.enabled_ns += other.enabled_ns;
        self.running_ns += other.running_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_by_what_was_missed() {
        let times = |enabled_ns, running_ns| Times {
            enabled_ns,
            running_ns,
        };
        assert_eq!(times(100, 25).scaled(10), Some(40));
        assert_eq!(times(100, 100).scaled(10), Some(10));
        assert_eq!(times(100, 0).scaled(0), None, "not counted is not 0");
        assert_eq!(times(0, 0).scaled(0), Some(0), "its target never ran");
        assert_eq!(times(u64::MAX, 1).scaled(u64::MAX), Some(u64::MAX));
    }
}
