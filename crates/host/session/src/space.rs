//! How tiptoe's agent used its table of a process's mappings.

use serde::{Deserialize, Serialize};

/// The agent is tiptoe's library in the process. When a trap (a breakpoint instruction) is hit, the agent looks up
/// the trap's probe in its table of executable mappings. The process itself reports these numbers, so they must not
/// be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct AddressSpace {
    /// Lookups that needed no lock.
    pub speculative: u64,
    /// Lookups under the table's lock.
    pub locked: u64,
    /// Lookups that found no probe. The trap's address, and the bytes around it, then showed whether it was tiptoe's.
    pub missed: u64,
    /// Lookups without a certain result, because the mappings were changing. The trap's address, and the bytes around
    /// it, then showed whether it was tiptoe's.
    pub unsure: u64,
    /// Hooked system calls that changed the mappings.
    pub changes: u64,
    /// How often the kernel's list of mappings was read.
    pub readings: u64,
    /// Corrections of the table for changes that no hook reported.
    pub corrected: u64,
    /// The number of mappings at the end. Adjacent parts of one file count as one mapping.
    pub mappings: u64,
    /// The size of the mappings, in bytes.
    pub bytes: u64,
}
