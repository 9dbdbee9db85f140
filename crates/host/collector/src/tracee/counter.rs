//! How one probe counts, and where.

use tiptoe_kernel::Step;
use tiptoe_session::Note;

use crate::planner::Follow;

/// How one probe counts.
pub struct Counter {
    pub event: String,
    pub names: Vec<String>,
    pub notes: Vec<Note>,
    /// How many registers hold its parameters, if calls are recorded and it is known.
    pub parameters: Option<u8>,
    pub source: Source,
}

/// Where a count is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In the slabs, at this slot. The site is patched with a permanent trap or with a jump.
    Agent {
        slot: u32,
        /// Every hit raises SIGTRAP.
        trap: bool,
        /// Which words follow the slot.
        follow: Follow,
    },
    Kernel(KernelUprobe),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KernelUprobe {
    pub index: usize,
    /// How the kernel executes the instruction there, which decides its price.
    pub step: Step,
}

impl Counter {
    /// Returns whether calls are followed to their return.
    pub fn is_followed(&self) -> bool {
        matches!(self.source, Source::Agent { follow, .. } if follow.is_followed())
    }

    /// Returns whether each call is recorded.
    pub fn is_recorded(&self) -> bool {
        let follow = Follow::Record;
        matches!(self.source, Source::Agent { follow: own, .. } if own == follow)
    }
}
