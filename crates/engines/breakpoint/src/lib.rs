//! Who holds which debug register, without a system call: before an event is opened its
//! slots are reserved here.
//!
//! The coordination removed: one mutex around all slots of a machine. Requests for tasks,
//! of which there may be thousands at once, run side by side; only one for a CPU, of which
//! there are few, has everybody else out of the way.
//!
//! *Rule*: a request is granted when on every CPU that it covers `slots of CPU-wide events +
//! slots of the task (of the task that holds most, where the request is CPU-wide) + its own
//! <= slots`. Only one task runs on a CPU at a time, so tasks never add up with each other.
//!
//! *State*, zeroed words of the caller: see [`Geometry`]. It holds no address, so that it may
//! lie in memory that is shared between processes, and no index in it is believed.
//!
//! *Locks*, [`tiptoe_sync::Shards`]:
//!
//! | request | takes | reads | changes |
//! |---|---|---|---|
//! | for a task | its shard (reader) | the task's own reservations; CPU-wide slots | these; the shard's histogram; histograms of CPUs, by atomic additions |
//! | for a CPU | all shards (writer) | all histograms; CPU-wide slots | CPU-wide slots |
//! | for several | all shards (writer) | everything | everything |
//!
//! 1. CPU-wide slots change only while all shards are held, so a task's request may read them.
//! 2. A task's reservations lie in its shard, so two requests of one task never meet.
//! 3. Requests of tasks add to the histograms but never decide by them ("modification without
//!    use"), so they need not agree on them; who decides by them holds all shards.
//! 4. `try_` never waits: not for a shard, and not for the backend's lock.
//! 5. On a machine with one CPU there is one shard, so that everybody is the writer.
//!
//! *Cost*: a reservation for a task on all CPUs looks at the task's own and at two words more,
//! whatever the number of CPUs and tasks; one for a CPU looks at each shard. `tiptoe bench
//! breakpoint stress` measures both.
//!
//! The idea is that of the kernel's own accounting since Linux 6.1 ("perf/hw_breakpoint:
//! Optimize for thousands of tasks", 2022).
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
pub mod inherit;
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
pub use request::{Kind, Request, Target};
pub use stats::{Side, Stats};
pub use tiptoe_sync::Wait;
