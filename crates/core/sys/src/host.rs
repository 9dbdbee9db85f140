//! Interfaces that tiptoe's own process uses. Process ids are those of tiptoe's pid namespace.

pub mod attach_progress;
pub mod bpf;
pub mod capabilities;
pub mod cgroup;
pub mod destination;
pub mod ends;
mod error;
pub mod inherited_descriptors;
pub mod kallsyms;
pub mod limits;
pub mod memory;
pub mod own_folder;
pub mod perf;
pub mod procfs;
pub mod random;
pub mod terminal;
pub mod tracefs;
pub mod tracers;

pub use capabilities::Capabilities;
pub use error::{Error, Result};
pub use procfs::{Mapping, Process, Status};
pub use tracers::{ForeignTracer, foreign_tracers};
