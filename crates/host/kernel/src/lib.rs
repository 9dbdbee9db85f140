//! Counts in the kernel what no agent can count.
//!
//! The in-process engines need an agent in the target. A static or 32-bit program, a program under seccomp, or a
//! function that cannot be patched has none. There the kernel's own uprobes count ([`UprobeSet`]). Their counts mean
//! the same, but a hit costs more: 230 to 480 ns if the kernel can emulate the instruction, up to 19 us if it must
//! single-step it (measured in a virtual machine).
//!
//! Events with perf's names are counted by sets of perf events ([`CounterSet`]).
//!
//! Only the kernel sees waits for its own locks. [`Waits`] times and counts them with BPF programs, whose sources and
//! built objects are in `bpf/`. [`Futexes`] does so at the futex calls of a program.
//!
//! Invariants:
//!
//! - A reading loses nothing: the counts of threads that have exited stay.
//! - Only the given process counts. Forked children do not, though they inherit its breakpoints, and pay for them,
//!   until they call exec.
//! - Dropping a set, or dying, disarms all of it.
//!
//! A caller must not arm an address that the agent has patched. Otherwise the kernel would resume the program inside
//! our jump.
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
pub use uprobes::{CountedThreads, KernelProbe, RefusedProbe, UprobeSet};
pub use waits::Waits;
pub use watchpoints::Watchpoints;
