//! What is asked for: events in groups, each for one target; and what became of them.

use core::fmt;

/// An event, by the number by which its PMU knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Event(pub u32);

/// A cgroup on a CPU, or a scope in a thread: where what runs now is counted. See [`crate::Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub u32);

impl Label {
    /// The one that all others are in.
    pub const ROOT: Label = Label(0);
}

/// What an event is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// All that runs in this context, whatever its label: events of the system on a CPU, of a thread in a thread.
    System,
    /// What runs under this label or one below it.
    Label(Label),
    /// The task that this context holds now; its events leave with it.
    Task,
}

/// Who gives way where slots are scarce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Always counts while its target runs, or is in error: nobody displaces it.
    Pinned,
    /// Shares what pinned ones leave, and is told for how long it counted.
    Flexible,
}

/// Events that go on together or not at all.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Which PMU of the context.
    pub pmu: usize,
    /// What for.
    pub target: Target,
    /// Who gives way.
    pub priority: Priority,
    /// A slot each.
    pub events: &'a [Event],
}

/// A group that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    /// Which PMU.
    pub pmu: usize,
    /// What for.
    pub target: Target,
    pub(crate) number: u32,
}

/// Why a group cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddError {
    /// A group of nothing.
    Empty,
    /// The context has no such PMU.
    NoPmu,
    /// The tree has no such label.
    NoLabel,
    /// It could never go on.
    TooLarge {
        /// Slots that it needs.
        events: usize,
        /// Slots that there are.
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

/// How a group is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Switched off.
    Off,
    /// Asked for, and not counting: its target does not run, or others have the slots.
    Waiting,
    /// Counting.
    Running,
    /// Pinned, and there was no slot that another pinned one did not have. It stays so until it is enabled again.
    Error,
}

/// For how long a group counted, of how long it was asked to: both in the time in which its target ran here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Times {
    /// While its target ran, and it was not off or in error.
    pub enabled_ns: u64,
    /// While it counted.
    pub running_ns: u64,
}

impl Times {
    /// What it missed.
    pub fn missed_ns(self) -> u64 {
        self.enabled_ns.saturating_sub(self.running_ns)
    }

    /// A count as it would be, had it counted all the time; `None` where it never did, and nothing can be said.
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
