/// What a breakpoint stops at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Writes, or writes and reads.
    Data,
    /// Execution.
    Instruction,
}

/// A breakpoint's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// One task.
    Task {
        /// The thread's id, or any unique number.
        task: u64,
        /// The only CPU, or `None` for all.
        cpu: Option<u32>,
    },
    /// One CPU, whichever task runs there.
    Cpu(u32),
}

/// A request for slots (debug registers). An equal request releases the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The target.
    pub target: Target,
    /// Data or instructions.
    pub kind: Kind,
    /// The number of slots.
    pub weight: u32,
    /// A number that the caller chooses. A [`crate::Conflict`] names blocking holders by this number.
    pub holder: u64,
}

/// Replaces a granted request by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The granted request, to be released.
    pub old: Request,
    /// The request in its place.
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

    /// Returns the only CPU, if any.
    pub fn cpu(&self) -> Option<u32> {
        match self.target {
            Target::Task { cpu, .. } => cpu,
            Target::Cpu(cpu) => Some(cpu),
        }
    }
}
