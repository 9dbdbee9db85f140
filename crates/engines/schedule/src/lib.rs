//! Which events run, where more are wanted than a *PMU* has slots: without a system call, so that it can be tried
//! out against any sequence.
//!
//! A [`Context`] holds the events of one PMU. Those that are *pinned* keep their slots. The others are *flexible*: they
//! take turns, those that waited longest for those that ran longest. A turn moves a living event to its next purpose
//! rather than closing one and opening another, and touches no slot but those that change hands.
//!
//! What an event saw is of the time that it ran ([`Context::ran_ns`]): whoever tells of it tells that, too.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod context;

pub use context::{Context, Pmu, TooManyPinned};
