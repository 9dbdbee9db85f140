//! A process's address space, and how its map was kept.

use serde::{Deserialize, Serialize};

/// One process's executable file mappings, as its agent keeps them. The process itself reports all
/// numbers, so they must not be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct AddressSpace {
    /// Lookups answered without a lock.
    pub speculative: u64,
    /// Lookups answered under the lock.
    pub locked: u64,
    /// Lookups without a certain result, where the agent judged by the bytes at the trap.
    pub missed: u64,
    /// Calls that changed the mappings, and were seen.
    pub changes: u64,
    /// How often the kernel's list of mappings was read.
    pub readings: u64,
    /// Corrections for changes that had not been seen.
    pub corrected: u64,
    /// Mappings at the end; adjacent parts of one file count as one.
    pub mappings: u64,
    /// Their size in bytes.
    pub bytes: u64,
}
