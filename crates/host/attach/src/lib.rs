//! The ways into a process that is to be traced. They bring the agent into it ([`inject`] into a running
//! program, [`preload`] into a new command), share segments with the agent ([`link`]), and hold a command that
//! must not begin yet.
//!
//! Everything that a target wrote is hostile. So sizes must come from our own geometry, and an address that an
//! agent reports may be used only inside that agent's process.
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

/// Returns a check for a process's end. A zombie has ended, unless other threads live.
pub fn end_check(pid: u32) -> Box<dyn Fn() -> bool + Send + Sync> {
    Box::new(move || match Process::new(pid).and_then(Process::status) {
        Ok(status) => matches!(status.state, 'Z' | 'X') && status.threads <= 1,
        // Other errors, such as too many open files, say nothing about the process.
        Err(error) => matches!(error, Error::NoSuchProcess { .. }),
    })
}
