//! Event scheduling: which events count when more are requested than a *PMU* has slots. It makes no system calls, so
//! that switches can be simulated.
//!
//! The coordination that this removes: other schedulers delete and add all events of a CPU at a switch of cgroups, so
//! events of the whole system miss what happens meanwhile. Here a switch touches only events of the cgroups left and
//! entered.
//!
//! A [`Context`] is a CPU or a thread. It holds groups of events, each for a [`Target`]: the system, the current task,
//! or a *label* (a cgroup on a CPU, a scope in a thread: see [`Tree`]) with all below it. While its target runs, a
//! group counts if there are slots for all its events. Groups are *pinned* or *flexible* ([`Priority`]).
//!
//! A switch between labels without groups reads two words for each PMU with events of labels. While all groups fit the
//! slots, a switch looks at the labels left and entered, and at sums of the labels above. Otherwise it sorts all groups
//! that could count. It allocates only for a task with more groups than any before.
//!
//! Invariants:
//!
//! 1. While all groups fit, a switch does not touch groups of the system or of labels above both ends.
//! 2. A pinned group counts whenever its target runs, or is in error. It never makes room for another group.
//! 3. All flexible groups take turns in one order, whatever their targets (see `order.rs`).
//! 4. What a group missed is known: [`Times`].
//!
//! All contexts share a tree. Its owner must call [`Context::forget`] before it deletes a label, otherwise that label's
//! groups would stay.
//!
//! [`Rotation`] is a simpler scheduler, for open events that take turns at addresses.
//!
//! The idea is from Kan Liang's kernel patches ("perf/x86: Optimize cgroup switch", 2019), refused for their unfair
//! rotation.
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

pub use context::{Context, Policy, Task};
pub use event::{AddError, Event, GroupId, Label, Priority, Request, State, Target, Times};
pub use pmu::{NoUsableSlot, Pmu};
pub use rotation::{Rotation, Slots, TooManyPinned};
pub use tree::Tree;
