//! Counts in the kernel what no agent can count.
//!
//! The in-process engines need an agent, which a static or 32-bit program, a program under seccomp, or a function
//! that cannot be patched cannot have. There the kernel's uprobes count ([`UprobeSet`]). Their counts mean the same,
//! but a hit costs more: 230 to 480 ns if the kernel emulates the instruction, up to 19 us if it single-steps it
//! (measured in a virtual machine).
//!
//! Sets of perf events count events with perf's names ([`CounterSet`]).
//!
//! Only the kernel sees waits for its own locks. [`Waits`] times and counts them with BPF programs, whose sources and
//! objects are in `bpf/`; [`Futexes`] does so at a program's futex calls.
//!
//! Invariants:
//!
//! - A reading loses nothing: exited threads' counts stay.
//! - Only the given process counts. Forked children do not, though they inherit its breakpoints, and pay for them,
//!   until exec.
//! - Dropping a set, or dying, disarms it.
//!
//! A caller must not arm an address that the agent patched; otherwise the kernel would resume the program inside our
//! jump.
#![forbid(unsafe_code)]

pub mod cgroups;
mod closing;
pub mod counters;
mod cpus;
mod error;
mod execs;
pub mod futexes;
mod instruction;
mod kernel_probe;
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
pub use error::{CounterRefusal, Error};
pub use futexes::Futexes;
pub use instruction::{ReplacedNop, Step, optimised, step, unprobeable};
pub use kernel_probe::{KernelProbe, RefusedProbe};
pub use programs::ProgramTimes;
pub use scopes::Scopes;
pub use uprobes::{CountedThreads, UprobeSet, may_count_processes};
pub use waits::Waits;
pub use watchpoints::Watchpoints;
