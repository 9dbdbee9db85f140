//! What the kernel runs for us, where no agent can go.
//!
//! The in-process engines need an agent in the target. A static or 32-bit
//! program, one under seccomp, or a function that cannot be patched has none:
//! there the kernel's own uprobes count ([`UprobeSet`]). They count the same
//! thing and cost more: 230 to 480 ns a hit where the kernel can emulate the
//! instruction, up to 19 us where it must single-step it (measured in a
//! virtual machine).
//!
//! Events by perf's names are counted by sets of perf events ([`CounterSet`]).
//!
//! The kernel's own locks are seen by nobody else: [`Waits`] times and counts
//! waits for them, by BPF programs whose sources and built objects lie in `bpf/`. [`Futexes`] does so
//! at the futex calls of a program.
//!
//! Invariants:
//!
//! - A reading loses nothing: threads that have ended stay counted.
//! - Only the given process counts; children that it forks do not, though they
//!   carry its breakpoints, and pay for them, until they call exec.
//! - Nothing is left behind: dropping a set, or dying, disarms all of it.
//!
//! A caller may not arm a place that the agent has patched: the kernel would
//! resume the program inside our jump.
#![forbid(unsafe_code)]

pub mod cgroups;
mod closing;
pub mod counters;
mod cpus;
mod error;
mod execs;
pub mod futexes;
mod instruction;
mod process;
mod programs;
mod refusal;
pub mod scopes;
#[cfg(test)]
#[path = "../../../../tests/support/skipped.rs"]
mod skipped;
mod threads;
mod uprobes;
pub mod waits;
pub mod watchpoints;

pub use cgroups::Cgroups;
pub use counters::CounterSet;
pub use error::Error;
pub use futexes::Futexes;
pub use instruction::{Optimised, Step, optimised, step, unprobeable};
pub use programs::ProgramTimes;
pub use scopes::Scopes;
pub use tiptoe_sys::host::tracefs::ArmedUprobe;
pub use uprobes::{KernelProbe, Refused, UprobeSet, Who};
pub use waits::Waits;
pub use watchpoints::Watchpoints;

use tiptoe_sys::host::tracefs::Tracefs;

/// Uprobes that others defined through tracefs; none where it cannot be read.
///
/// Those that others opened through perf_event_open or BPF are not named anywhere.
pub fn armed_elsewhere() -> Vec<ArmedUprobe> {
    Tracefs::detect().uprobes()
}
