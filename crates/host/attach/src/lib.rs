//! A process that is about to be traced: the two ways to bring the agent in, the segments shared with
//! it, and the command that waits until then.
//!
//! | module | job |
//! |---|---|
//! | [`Attached`] | one process: its names, its CPU time, its end, its agent, the hold of a command |
//! | [`debuginfod`] | asks a server for debug information |
//! | [`doorbell`] | wakes tiptoe when an agent reports a change |
//! | `hold` | what holds a started command until it may begin |
//! | [`inject`] | the way into a running program |
//! | [`link`] | the two segments shared with an agent, and requests to it |
//! | [`loader`] | the name that a started command's loader has for the agent |
//! | [`offer`] | segments for a future agent |
//! | [`phase`] | the phase of the run, which decides what a signal does |
//! | [`preload`] | the way into a command that is started |
//! | [`ready`] | notifies programs that wait until counting has begun |
//! | [`resident`] | what an earlier agent left |
//! | `stops` | why a traced thread stopped |
//! | [`target_files`] | files of a target, read piece by piece |
//!
//! Everything that a target wrote is hostile: sizes must come from our own geometry, and addresses
//! that an agent reports may only be used inside that same target.
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

use tiptoe_sys::host::Process;

pub use attached::{Attached, command_line};
pub use error::AttachError;

/// Returns a function that says whether a process has ended; a zombie has.
pub fn gone(pid: u32) -> Box<dyn Fn() -> bool + Send + Sync> {
    Box::new(move || match Process::new(pid).and_then(Process::status) {
        Ok(status) => matches!(status.state, 'Z' | 'X') && status.threads <= 1,
        Err(_) => true,
    })
}
