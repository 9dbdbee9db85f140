//! Reserves debug registers (*slots*), without system calls, before an event is opened.
//!
//! Requests for tasks run concurrently; Linux before 6.1 has one mutex around all slots of a machine. A request for a
//! CPU runs beside tasks' requests, unless it must be checked again (rule 4).
//!
//! *Rule*: a request is granted if on every CPU that it covers `CPU-wide slots + slots of the task + requested slots <=
//! all slots`. For a CPU-wide request, the task is the one that holds most slots on that CPU. Slots of different tasks
//! never add up, because a CPU runs one task at a time.
//!
//! *State*: memory of the caller, which must be zeroed before its first use ([`Geometry`]). Processes may share the
//! memory, because it contains no address, and every index in it is checked.
//!
//! *Locks* are [`tiptoe_sync::Shards`], mutexes chosen by task, and one lock of CPUs:
//!
//! | request | takes | reads | changes |
//! |---|---|---|---|
//! | for a task | its shard | the task's reservations; CPU-wide slots | these reservations; the shard's histogram and maximum; histograms of CPUs, by atomic additions |
//! | for a CPU | the lock of CPUs | the shards' maxima; its CPU's histogram; CPU-wide slots | CPU-wide slots |
//! | for several targets, or a CPU's second check (4) | all | everything | everything |
//!
//! 1. A task's reservations are in the task's shard, so its requests exclude each other.
//! 2. Locks are taken in this order: shards, ascending; then the lock of CPUs.
//! 3. A task's request and a CPU's run concurrently. Each adds its slots (is *recorded*) before its last check, which
//!    reads the other's slots (edge A). So of two requests that do not fit together, at least one sees the other.
//! 4. If a request has no room beside a recorded request, it is checked again, because the recorded request may fail
//!    and be removed. The second check holds the lock of CPUs for a task's request, and all locks for a CPU's.
//! 5. Slots become free only after the backend released them.
//! 6. `modify` excludes CPUs' requests, because for a moment neither the old nor the new request is recorded.
//! 7. `try_` must never wait, not even for the backend's lock.
//! 8. A machine with one CPU has one shard. Its lock excludes all other requests, so the lock of CPUs is not used.
//!
//! | edge | one side | the other |
//! |---|---|---|
//! | A: a request was recorded | a task's: fence in `check_again_locked` | a CPU's: fence in `fits_beside_tasks_locked` |
//! | M: a CPU's histogram changed | fence and addition in `Cpu::move_task` | load and fence in `Cpu::most` |
//!
//! Based on the kernel's accounting since Linux 6.1 ("perf/hw_breakpoint: Optimize for thousands of tasks", 2022).
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
pub use geometry::{Geometry, MAX_CPUS, MAX_SLOTS, PROCESS_RESERVATIONS, Registers};
pub use request::{Kind, Replacement, Request, Target};
pub use stats::{Side, Stats};
pub use tiptoe_sync::Wait;
