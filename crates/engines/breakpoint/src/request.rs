//! What is asked for.

/// What a breakpoint stops at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Writes, or reads and writes.
    Data,
    /// Execution.
    Instruction,
}

/// Where a breakpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// It goes with a task.
    Task {
        /// The thread's id, or whatever else tells tasks apart.
        task: u64,
        /// Only while it runs on this CPU; else on all of them.
        cpu: Option<u32>,
    },
    /// It is on a CPU, whichever task runs there.
    Cpu(u32),
}

/// What is asked for: what was reserved is released by the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Where.
    pub target: Target,
    /// At what it stops.
    pub kind: Kind,
    /// How many slots it takes.
    pub weight: u32,
    /// Whose it is, in the caller's numbers: what a [`crate::Conflict`] names.
    pub holder: u64,
}

impl Request {
    /// One slot for `holder`.
    pub fn new(target: Target, kind: Kind, holder: u64) -> Self {
        Request {
            target,
            kind,
            weight: 1,
            holder,
        }
    }

    /// The CPU that it is on, if it is on one.
    pub fn cpu(&self) -> Option<u32> {
        match self.target {
            Target::Task { cpu, .. } => cpu,
            Target::Cpu(cpu) => Some(cpu),
        }
    }
}
