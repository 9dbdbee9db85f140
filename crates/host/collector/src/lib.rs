//! The one driver that all instruments share: from a list of events and a target to a session.
//!
//! | module | job |
//! |---|---|
//! | [`request`] | the request for a run, and its outcome |
//! | [`error`](mod@error) | all messages and hints |
//! | [`module`] | the files that a target has mapped |
//! | [`resolve`] | resolves specs to probes |
//! | [`planner`] | plans the patches of probes |
//! | [`counts`] | reads counts from slabs |
//! | [`call_sums`] | adds up the words of threads |
//! | [`tracee`] | one process, and who counts its probes |
//! | [`probes`] | probes, locks of programs and scopes |
//! | [`run`](mod@run) | picks the instruments of a request |
//! | [`start`] | attaches to processes, or starts a command |
//! | [`words`] | lists and numbers in sentences |
//! | [`locks`](mod@locks) | waits for the kernel's locks |
//! | [`ulocks`] | waits for the locks of programs |
//! | [`watch`](mod@watch) | accesses to variables |
//! | [`stat`](mod@stat) | events by perf's names |
//! | [`drive`](mod@drive) | the one loop of a run and its clock |
//!
//! Data that a target can write is hostile. So sizes must come from our own geometry, and addresses that an agent
//! reports must be used only in the agent's process.
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
