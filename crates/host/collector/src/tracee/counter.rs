//! What one probe counts.

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
    /// How the kernel executes the instruction decides its price.
    Kernel(Step),
}
