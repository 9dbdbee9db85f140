//! What the driver is asked, what it tells while it runs, and what it hands back.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use tiptoe_event::{Filter, Via};
use tiptoe_session::{Access, Call, Counts, Interval, Session};

use crate::ready::Ready;
pub use crate::ulocks::ByLock;

/// Everything that one run of the driver is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The agent: the shared object that is brought into targets.
    pub agent: &'static [u8],
    /// The events, each in the event grammar.
    pub specs: Vec<String>,
    /// Which hits count; without it, all.
    pub filter: Option<Filter>,
    /// Whom to trace.
    pub target: RequestTarget,
    /// Who counts.
    pub via: Via,
    /// What counts are split by.
    pub by: Option<By>,
    /// Whether calls are timed from their entry to their return.
    pub latency: bool,
    /// Whether each call is recorded, and told while the trace runs.
    pub record: bool,
    /// Whether waits for contended locks are watched, and what they are split by.
    pub locks: Option<ByLock>,
    /// The lock of which it is told how long it is held: a variable, or an address.
    pub hold: Option<String>,
    /// Events, by perf's names, that are charged to the scopes that the program enters, where it is told what these cost.
    pub scopes: Option<Vec<String>>,
    /// Of the timed calls, only those that take longer than this.
    pub slower_ns: Option<u64>,
    /// Only calls below this function, on the same thread; in the event grammar.
    pub under: Option<String>,
    /// How long to trace; without it, until the target ends or `stop` is set.
    pub duration: Option<Duration>,
    /// How long to wait before the events are switched on.
    pub delay: Option<Duration>,
    /// How often to tell the observer what was counted since the last time.
    pub interval: Option<Duration>,
    /// How much of the target's CPU time tracing may take.
    pub budget: Budget,
    /// Patch even where the rules say that the kernel should count.
    pub force: bool,
    /// Set from outside (by Ctrl-C) to end the trace and take the results.
    pub stop: Arc<AtomicBool>,
    /// Set from outside, besides `stop`, to the number of a signal that a started command
    /// is to get: it would else run on when its trace has ended.
    pub hand_on: Arc<AtomicUsize>,
    /// Is notified when counting has begun.
    pub ready: Ready,
}

/// Whom to trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// Running processes.
    Pids(Vec<u32>),
    /// A command to start: the program and its arguments.
    Command(Vec<OsString>),
}

/// What counts are split by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each thread for itself.
    Thread,
    /// Threads of one name together.
    Comm,
    /// Each value of this argument.
    Argument(u8),
    /// Each scope that the program enters.
    Scope,
}

/// How much of the target's CPU time tracing may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// All of it: nothing is thinned, counts are exact.
    Off,
    /// This many percent.
    Percent(f64),
}

impl Budget {
    /// The part of the target's CPU time; `None` where all of it may go.
    pub fn share(self) -> Option<f64> {
        match self {
            Budget::Off => None,
            Budget::Percent(percent) => Some(percent / 100.0),
        }
    }
}

/// Who listens while the driver runs.
pub trait Observer {
    /// An interval has passed.
    fn interval(&mut self, interval: &Interval);
    /// Calls that were recorded since the last time, in the order of their beginning.
    fn calls(&mut self, calls: &[Call<'_>]);
    /// Accesses to watched variables since the last time, in their order.
    fn accesses(&mut self, _accesses: &[Access<'_>]) {}
    /// An interval of counting has passed.
    fn counts(&mut self, _counts: &Counts) {}
    /// Whether it wants to be told of calls at all: else they are read and counted only.
    fn wants_calls(&self) -> bool {
        true
    }
    /// Something the user should know now, as one sentence.
    fn note(&mut self, note: &str);
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was observed, with what cost.
    pub session: Session,
    /// The status of a command that was started, 128 + N where signal N ended it.
    pub exit_status: Option<i32>,
}

/// Why a run failed. Nothing of it is left in the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("{what}")]
pub struct Error {
    what: String,
    hint: Option<String>,
}

impl Error {
    /// A failure in one sentence.
    pub fn new(what: impl Into<String>) -> Error {
        Error {
            what: what.into(),
            hint: None,
        }
    }

    /// With what the user can do about it, as one sentence.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Error {
        Error {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}

impl From<tiptoe_kernel::Error> for Error {
    fn from(error: tiptoe_kernel::Error) -> Error {
        Error {
            what: error.to_string(),
            hint: error.hint(),
        }
    }
}

impl From<tiptoe_sys::host::Error> for Error {
    fn from(error: tiptoe_sys::host::Error) -> Error {
        Error {
            what: error.to_string(),
            hint: error.hint(),
        }
    }
}
