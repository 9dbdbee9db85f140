//! Counts a list of events in a target, and returns a session.
//!
//! [`run`](mod@run) picks the instruments (ways to count) for a [`request`], and the loop in [`drive`](mod@drive)
//! calls them:
//! - [`probes`] counts functions, scopes and the locks of programs ([`ulocks`]): [`start`] attaches to each process
//!   ([`tracee`]), [`resolve`] finds functions in its files ([`module`]), and [`planner`] plans patches;
//! - [`locks`](mod@locks) counts waits for the kernel's locks, [`watch`](mod@watch) accesses to variables;
//! - [`stat`](mod@stat) counts events by perf's names.
//!
//! Data that a target can write is hostile. So sizes must come from the memory layout that tiptoe chose. Addresses
//! that an agent (tiptoe's library in a target) reports must be used only in that target.
#![warn(missing_docs)]

mod call_sums;
mod clock;
mod counts;
mod drive;
mod error;
mod forks;
mod locks;
mod measured;
mod module;
mod planner;
mod probe_slots;
mod probes;
mod request;
mod resolve;
mod run;
mod scopes;
mod start;
mod stat;
mod tracee;
mod ulocks;
mod values;
mod watch;
mod words;

pub use tiptoe_attach::phase::{Phase, end_command, has_no_command};
pub use tiptoe_attach::ready::{CountedProcess, Ready};

pub use error::Error;
pub use probes::toggle;
pub use request::{
    AccessOptions, Budget, CallOptions, CounterOptions, Observer, Outcome, Progress, Request,
    RequestTarget, RunOptions, Split,
};
pub use run::run;
pub use stat::{MOST_READ, is_at_switches, is_read};
pub use ulocks::now as lock_waits_now;
pub use words::few;
