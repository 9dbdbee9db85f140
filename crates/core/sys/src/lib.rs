//! The one seam to the kernel.
//!
//! Two faces, because two kinds of code call the kernel:
//!
//! - [`raw`]: system calls without libc, for the agent inside a traced
//!   program. No allocation, no `errno`, no thread-local storage.
//! - [`host`] (feature `host`): what tiptoe itself asks of the machine:
//!   processes, mappings, perf events, capabilities. It uses std and is never
//!   linked into a target.
//!
//! Rule: a crate that runs inside a target depends on this one with no feature.
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
