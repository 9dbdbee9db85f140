//! Groups of events that compete for slots, by rank.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReassignCause {
    /// A switch, or a group was added, removed or changed.
    Change,
    /// A rotation, in which waiting groups get slots.
    Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetId {
    System,
    Home(u32),
    Task,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) rank: Rank,
    pub(crate) set: SetId,
    pub(crate) group: usize,
    pub(crate) is_chosen: bool,
}

/// The smallest rank is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) is_flexible: bool,
    pub(crate) share: u32,
    /// Decides between equal shares: `false` is served first. At a turn, running flexible groups give way; in all other
    /// cases, waiting groups do.
    pub(crate) gives_way: bool,
    /// 0 for the system, then labels from the outermost inwards, then the task.
    pub(crate) level: u32,
    pub(crate) number: u32,
}

impl Candidate {
    pub(crate) fn is_pinned(&self) -> bool {
        !self.rank.is_flexible
    }
}
