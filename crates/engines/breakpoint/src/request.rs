//! Requests for slots.

/// What a breakpoint stops at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Writes, or reads and writes.
    Data,
    /// Execution.
    Instruction,
}

/// The target of a breakpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Counts accesses of one task.
    Task {
        /// The thread's id, or any unique number.
        task: u64,
        /// The only CPU where it counts, or `None` for all.
        cpu: Option<u32>,
    },
    /// Counts on one CPU, whichever task runs there.
    Cpu(u32),
}

/// A request for slots. Its release must pass an equal request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The target.
    pub target: Target,
    /// Whether the breakpoint stops at data or at instructions.
    pub kind: Kind,
    /// How many slots it takes.
    pub weight: u32,
    /// The caller's number for the holder, named by a [`crate::Conflict`].
    pub holder: u64,
}

/// A request that takes the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The granted request, which is released.
    pub old: Request,
    /// The request that takes its place.
    pub new: Request,
}

impl Request {
    /// Returns a request for one slot.
    pub fn new(target: Target, kind: Kind, holder: u64) -> Self {
        Request {
            target,
            kind,
            weight: 1,
            holder,
        }
    }

    /// Returns the only CPU, if it has one.
    pub fn cpu(&self) -> Option<u32> {
        match self.target {
            Target::Task { cpu, .. } => cpu,
            Target::Cpu(cpu) => Some(cpu),
        }
    }
}
