//! What one probe counts.

use tiptoe_event::Via;
use tiptoe_kernel::Step;
use tiptoe_session::Note;

use crate::planner::Follow;

pub struct Counter {
    pub event: String,
    pub names: Vec<String>,
    pub notes: Vec<Note>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    Agent {
        trap: bool,
        follow: Follow,
    },
    /// The price of a hit depends on how the kernel executes the instruction.
    Kernel(Step),
}

impl Source {
    pub fn is_trap(self) -> bool {
        matches!(self, Source::Agent { trap: true, .. })
    }

    pub fn via(self) -> Via {
        match self {
            Source::Agent { .. } => Via::Agent,
            Source::Kernel(_) => Via::Kernel,
        }
    }
}
