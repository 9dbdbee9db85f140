//! The only interface to the kernel, in two parts:
//!
//! - [`raw`]: system calls without libc, for the agent inside a traced program.
//! - [`host`] (feature `host`): tiptoe's questions to the machine: processes, mappings, perf
//!   events, capabilities. It uses std and is never linked into a target.
//!
//! Rule: a crate that runs inside a target must depend on this one without features.
#![no_std]

pub mod raw;
pub mod rights;

#[cfg(feature = "host")]
extern crate std;

#[cfg(feature = "host")]
pub mod host;
#[cfg(all(test, feature = "host"))]
#[path = "../../../../tests/support/skipped.rs"]
mod skipped;
