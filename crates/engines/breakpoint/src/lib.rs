//! Accounting of debug registers without system calls: slots are reserved here before an event is opened.
//!
//! The coordination that this removes: one mutex around all slots of a machine. Requests for tasks run
//! concurrently, also with a request for a CPU that fits. Requests for CPUs exclude each other.
//!
//! *Rule*: a request is granted if on every CPU that it covers `slots of CPU-wide events + slots of the task (for a
//! CPU-wide request: of the task that holds most) + its own <= slots`. A CPU runs one task at a time, so slots of
//! different tasks never add up.
//!
//! *State*: zeroed words of the caller, see [`Geometry`]. They hold no address, so that processes may share them, and
//! every index in them is checked.
//!
//! *Locks*, [`tiptoe_sync::Shards`]: one for each shard of tasks, and one for CPUs.
//!
//! | request | takes | reads | changes |
//! |---|---|---|---|
//! | for a task | its shard | the task's own reservations; CPU-wide slots | these; the shard's histogram and maximum; histograms of CPUs, by atomic additions |
//! | for a CPU | the lock of CPUs | the shards' maxima; its CPU's histogram; CPU-wide slots | CPU-wide slots |
//! | for several, or refused for a CPU | all | everything | everything |
//!
//! 1. A task's reservations are in its shard, so its requests exclude each other.
//! 2. Locks are taken in this order: shards, ascending; then the one of CPUs.
//! 3. A request for a task and one for a CPU run concurrently. Each is *recorded* before it is checked: it first adds
//!    its slots, then reads the other's (edge A). So at least one of two that do not fit together sees the other.
//! 4. A request that sees another one in its way may see one that will be undone. So no such refusal is final. The task's
//!    request is checked again under the lock of CPUs, and the CPU's under all locks. Only requests that are refused, or
//!    almost, wait for each other.
//! 5. Slots become free only after the backend has released them.
//! 6. `modify` has a moment in which neither request is recorded. So it excludes requests for CPUs.
//! 7. `try_` must never wait, neither for a lock nor for the backend's.
//! 8. A machine with one CPU has one shard, so every request excludes all others, and the lock of CPUs is not needed.
//!
//! | edge | one side | the other |
//! |---|---|---|
//! | A: a request was recorded | fence in `check_again_locked`, of a task's | fence in `fits_beside_tasks_locked`, of a CPU's |
//! | M: a CPU's histogram changed | fence and addition in `Cpu::move_task` | load and fence in `Cpu::most` |
//!
//! *Cost*: a reservation for a task on all CPUs reads the task's reservations and two more words, and has a fence. A
//! reservation for a CPU reads a word of each shard. `tiptoe-dev bench breakpoint stress` measures both.
//!
//! The idea is from the kernel's accounting since Linux 6.1 ("perf/hw_breakpoint: Optimize for thousands of tasks",
//! 2022).
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod accounting;
mod backend;
mod conflicts;
mod constraints;
mod cpu;
mod error;
mod geometry;
mod histogram;
mod locks;
#[cfg(all(test, tiptoe_loom))]
mod models;
mod primitive;
mod request;
mod stats;
mod tasks;
mod words;

pub use accounting::Accounting;
pub use backend::{Backend, NoBackend, Refusal};
pub use error::{Conflict, Error, Holder, MOST_HOLDERS};
pub use geometry::{Geometry, MAX_CPUS, MAX_SLOTS, Registers};
pub use request::{Kind, Replacement, Request, Target};
pub use stats::{Side, Stats};
pub use tiptoe_sync::Wait;
