//! What is known of a process's address space, and how it was kept.

use serde::{Deserialize, Serialize};

/// The address space of one process, as its agent keeps it: what of files can be
/// executed where. All numbers are the process's own claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddressSpace {
    /// Lookups that were answered without a lock.
    pub speculative: u64,
    /// Lookups that were answered under the lock.
    pub locked: u64,
    /// Lookups that found nothing, or nothing certain: the code's bytes decided.
    pub missed: u64,
    /// Calls of the program's that changed it, and were seen.
    pub changes: u64,
    /// How often the kernel's list of mappings was read.
    pub readings: u64,
    /// Differences that this found although nothing was in doubt: changes that
    /// nobody had seen.
    pub corrected: u64,
    /// Mappings at the end; those that continue each other are one.
    pub mappings: u64,
    /// Their bytes.
    pub bytes: u64,
}
