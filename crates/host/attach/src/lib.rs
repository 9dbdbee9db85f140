//! Enters a process to be traced. Brings the agent (tiptoe's library) into it, by [`inject`] or [`preload`], shares
//! memory with the agent ([`link`]), and holds a command that must not begin yet.
//!
//! Everything that a target wrote may be hostile. So sizes must come from tiptoe's own
//! [`Geometry`](tiptoe_wire::Geometry), and an address that an agent reports may be used only inside that agent's
//! process.
#![warn(missing_docs)]

mod attached;
pub mod debuginfod;
pub mod doorbell;
mod error;
mod hold;
pub mod inject;
mod launch;
pub mod link;
pub mod loader;
mod memfd;
mod new_program;
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

/// Returns a check for a process's end: the first thread is a zombie, or gone, and no other thread lives.
pub fn end_check(pid: u32) -> Box<dyn Fn() -> bool + Send + Sync> {
    Box::new(move || match Process::new(pid).and_then(Process::status) {
        Ok(status) => status.has_ended() && status.threads <= 1,
        // Other errors, such as too many open files, say nothing about the process.
        Err(error) => matches!(error, Error::NoSuchProcess { .. }),
    })
}
