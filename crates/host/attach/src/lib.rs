//! The ways into a process that is to be traced: bring the agent into it, share segments with the
//! agent, hold a command that must not begin yet.
//!
//! | module | job |
//! |---|---|
//! | [`Attached`] | one process: its names, CPU time, end and agent; the hold of a command |
//! | [`debuginfod`] | fetches debug files from a server |
//! | [`doorbell`] | wakes tiptoe when an agent reports a change |
//! | `hold` | what keeps a started command from beginning |
//! | [`inject`] | brings the agent into a running program |
//! | [`link`] | the two segments shared with an agent, and requests to it |
//! | [`loader`] | renames the agent in a program's loader |
//! | [`offer`] | segments for an agent that does not run yet |
//! | [`phase`] | the phase of the run, which decides what a signal does |
//! | [`preload`] | starts a command with the agent in it |
//! | [`ready`] | notifies programs that wait until counting has begun |
//! | [`resident`] | what an earlier agent left in a process |
//! | `stops` | why a traced thread stopped |
//! | [`target_files`] | reads a target's files piece by piece |
//!
//! Everything that a target wrote is hostile: sizes must come from our own geometry, and an address
//! that an agent reports may be used only inside that agent's process.
#![warn(missing_docs)]

mod attached;
pub mod debuginfod;
pub mod doorbell;
mod error;
mod hold;
pub mod inject;
pub mod link;
pub mod loader;
pub mod offer;
pub mod phase;
pub mod preload;
pub mod ready;
pub mod resident;
mod stops;
pub mod target_files;

use tiptoe_sys::host::{Error, Process};

pub use attached::{Attached, command_line};
pub use error::AttachError;

/// Returns a function that checks whether a process has ended. A zombie without other threads has ended.
pub fn end_check(pid: u32) -> Box<dyn Fn() -> bool + Send + Sync> {
    Box::new(move || match Process::new(pid).and_then(Process::status) {
        Ok(status) => matches!(status.state, 'Z' | 'X') && status.threads <= 1,
        // Other errors, such as too many open files, say nothing about the process.
        Err(error) => matches!(error, Error::NoSuchProcess { .. }),
    })
}
