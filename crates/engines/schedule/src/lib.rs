//! Decides which events count when more events are requested than a *PMU* ([`Pmu`]) has slots. The crate makes no
//! system calls, so that switches can be simulated.
//!
//! At a switch of cgroups, other schedulers delete and add again all events of a CPU, so events of the whole system
//! miss what happens in between. Here a switch touches only events of the cgroups that the CPU leaves or enters.
//!
//! A [`Context`] is a CPU or a thread. It holds groups of events, each for a [`Target`]: the system, the current task,
//! or a *label* and all labels below it. A label is a cgroup on a CPU, or a scope (a section of code) in a thread
//! ([`Tree`]). While its target runs, a group counts if there are slots for all its events. Groups are *pinned* or
//! *flexible* ([`Priority`]).
//!
//! If no label that a switch leaves or enters has groups, the switch reads two words for each PMU that has groups of
//! labels. While all groups fit the slots, a switch looks at the labels that it leaves or enters, and at how many slots
//! the labels above need. If not all fit, it sorts all groups that could count. A switch allocates only for a task with
//! more groups than any earlier task.
//!
//! Invariants:
//!
//! 1. While all groups fit, a switch does not touch groups of the system, or of labels that contain both the old and
//!    the new label.
//! 2. Whenever its target runs, a pinned group counts or is in error. It never loses its slots to another group.
//! 3. All flexible groups take turns in one order, whatever their targets (see `order.rs`).
//! 4. A group's [`Times`] show how long it waited for slots.
//!
//! All contexts share a tree. Before a label is deleted, its groups must be removed by [`Context::forget`].
//!
//! [`Rotation`] is a simpler scheduler, for breakpoints: addresses take turns in the slots.
//!
//! The idea of such switches is from Kan Liang's kernel patches ("perf/x86: Optimize cgroup switch", 2019), which were
//! refused because their rotation is unfair.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod candidate;
mod context;
mod event;
mod group;
mod homes;
mod order;
mod pmu;
mod rotation;
mod set;
pub mod simulate;
mod tree;
mod unit;

pub use context::{Context, Task};
pub use event::{AddError, Event, GroupId, Label, Priority, Request, State, Target, Times};
pub use pmu::{NoUsableSlot, Pmu};
pub use rotation::{Rotation, Slots, TooManyPinned};
pub use tree::Tree;
pub use unit::Policy;
