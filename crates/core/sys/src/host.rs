//! tiptoe's own questions to the machine that it runs on.
//!
//! Everything but [`memory`], [`destination`] and [`own_folder`] only reads: `/proc`, `/sys`,
//! tracefs, and system calls that change nothing outside this process. Process ids are those of
//! tiptoe's own pid namespace. Files of a target are opened through `/proc/PID`, so a target in
//! another mount namespace needs no special care.

pub mod attaching;
pub mod bpf;
pub mod capabilities;
pub mod cgroup;
pub mod destination;
pub mod ends;
mod error;
pub mod inherited;
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
