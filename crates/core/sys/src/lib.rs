//! The only interface to the kernel. [`raw`] makes system calls without libc, for tiptoe's code inside a traced
//! program (a target). [`host`], which a feature enables, uses std.
//!
//! A crate that runs inside a target must depend on this one without features.
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
