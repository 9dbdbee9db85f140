//! Counts in the kernel what tiptoe's agent, a library inside the program, cannot count.
//!
//! [`UprobeSet`] counts hits of instructions in programs that no agent can enter: static, 32-bit, or under seccomp. A
//! hit costs 230 to 480 ns if the kernel emulates the instruction, up to 19 us if it single-steps (in a virtual
//! machine). [`CounterSet`] counts perf's events. BPF programs (`bpf/`) time waits for the kernel's locks ([`Waits`])
//! and in futex calls ([`Futexes`]).
//!
//! Invariants:
//!
//! - The counts of exited threads are included.
//! - [`UprobeSet`], [`Futexes`] and [`Watchpoints`] count the given process only. Its forked children are not
//!   counted, but breakpoints that children inherit cost them time until exec.
//! - A set is disarmed when dropped, or when tiptoe dies.
//!
//! A caller must not arm an address that the agent patched, because the kernel would resume the program inside the
//! agent's jump.
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
#[cfg(test)]
mod layout_tests;
mod name;
mod process;
mod process_tasks;
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
pub use process_tasks::ProcessTasks;
pub use programs::ProgramTimes;
pub use scopes::Scopes;
pub use uprobes::{CountedThreads, UprobeSet, may_count_processes};
pub use waits::Waits;
pub use watchpoints::Watchpoints;
