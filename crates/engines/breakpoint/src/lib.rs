//! Accounting of debug registers without system calls: slots are reserved here before an event is opened.
//!
//! The coordination that this removes: one mutex around all slots of a machine. Requests for tasks run
//! concurrently. Only the rare request for a CPU excludes all others.
//!
//! *Rule*: a request is granted if on every CPU that it covers `slots of CPU-wide events + slots of the task (for a
//! CPU-wide request: of the task that holds most) + its own <= slots`. A CPU runs one task at a time, so slots of
//! different tasks never add up.
//!
//! *State*: zeroed words of the caller, see [`Geometry`]. They hold no address, so that processes may share them, and
//! every index in them is checked.
//!
//! *Locks*, [`tiptoe_sync::Shards`]:
//!
//! | request | takes | reads | changes |
//! |---|---|---|---|
//! | for a task | its shard (reader) | the task's own reservations; CPU-wide slots | these; the shard's histogram; histograms of CPUs, by atomic additions |
//! | for a CPU | all shards (writer) | all histograms; CPU-wide slots | CPU-wide slots |
//! | for several | all shards (writer) | everything | everything |
//!
//! 1. CPU-wide slots must change only while all shards are held, because a task's request reads them under its own
//!    shard.
//! 2. A task's reservations are in its shard, so its requests exclude each other.
//! 3. Requests for tasks add to the histograms but never decide by them ("modification without use"), so they need no
//!    order. A request that decides by them must hold all shards.
//! 4. `try_` must never wait, neither for a shard nor for the backend's lock.
//! 5. A machine with one CPU has one shard, so that every request is a writer.
//!
//! *Cost*: a reservation for a task on all CPUs reads the task's reservations and two more words. A reservation
//! for a CPU reads each shard. `tiptoe-dev bench breakpoint stress` measures both.
//!
//! The idea is from the kernel's accounting since Linux 6.1 ("perf/hw_breakpoint: Optimize for thousands of tasks",
//! 2022).
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod accounting;
mod backend;
mod constraints;
mod cpu;
mod error;
mod geometry;
mod histogram;
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
