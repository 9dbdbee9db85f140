//! Which events count, where more are wanted than a *PMU* has slots: without a system call, so that it can be tried
//! out against any sequence.
//!
//! The coordination removed: at a switch from one cgroup to another all events of a CPU go out and in again, those of
//! the whole system too, which miss what happens meanwhile. Here a switch touches only what is of the cgroups left and
//! entered.
//!
//! A [`Context`] is a CPU or a thread. It holds groups of events, each for a [`Target`]: the system, a *label* (a cgroup
//! on a CPU, a scope in a thread: see [`Tree`]) and all below it, or the task that runs. A group counts as a whole or not
//! at all, while its target runs, if it finds slots. Groups are *pinned* or *flexible* ([`Priority`]).
//!
//! | switch | what it looks at | allocates |
//! |---|---|---|
//! | between labels without groups of their own, below the same one that has some | two words for each PMU with events of labels | no |
//! | while all that is wanted fits | the labels left and entered, and sums of those above | no |
//! | while it does not | all groups that could count, put in order | no |
//! | of tasks with events | the same, and the tasks' groups | where a task has more than any before |
//!
//! What holds:
//!
//! 1. While all that is wanted fits the slots, groups of the system and of labels above both ends of a switch are not
//!    touched by it.
//! 2. A pinned group counts whenever its target runs, or is in error; it never makes room for another.
//! 3. Flexible groups take turns in one order, whosever they are (`order.rs` says which).
//! 4. What a group missed is known: [`Times`].
//!
//! PMUs without events of labels are not looked at when labels switch. A tree is shared by all contexts; a caller changes
//! it, and tells them of a label that is deleted ([`Context::forget`]). Labels that are never named cost 8 bytes for each
//! PMU with events of labels.
//!
//! [`Rotation`] is the smaller thing for living events that are moved from one purpose to the next, where all that
//! there is are turns.
//!
//! The idea is that of Kan Liang's patches for the kernel ("perf/x86: Optimize cgroup switch", 2019), which were refused as
//! rotation was not fair with them.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

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
pub use pmu::{Pmu, Refused};
pub use rotation::{Rotation, Slots, TooManyPinned};
pub use tree::Tree;
