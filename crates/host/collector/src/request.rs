//! The driver's request, its reports while it runs, and its outcome.

use std::ffi::OsString;

use tiptoe_event::{Filter, Via};
use tiptoe_session::{Access, Call, Cost, Count, Counts, Interval, Note, ScopeCounts, Session};

use crate::drive::RunOptions;
pub use crate::ulocks::ByLock;

/// The request for one run of the driver.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The agent: the shared object to load into targets.
    pub agent: &'static [u8],
    /// The events, each in the event grammar.
    pub specs: Vec<String>,
    /// Which hits count; all if `None`.
    pub filter: Option<Filter>,
    /// The target.
    pub target: RequestTarget,
    /// Whether the agent or the kernel counts.
    pub via: Via,
    /// What counts are split by.
    pub by: Option<By>,
    /// Whether calls are timed from their entry to their return.
    pub latency: bool,
    /// Whether each call is recorded, and reported during the trace.
    pub record: bool,
    /// Whether waits for contended locks are watched, and what they are split by.
    pub locks: Option<ByLock>,
    /// The lock whose hold times are measured: a variable, or an address.
    pub hold: Option<String>,
    /// Events, by perf's names, to charge to the program's scopes, if their costs are reported.
    pub scopes: Option<Vec<String>>,
    /// Count only calls longer than this, if calls are timed.
    pub slower_ns: Option<u64>,
    /// Count only calls below this function, on the same thread; in the event grammar.
    pub under: Option<String>,
    /// How much of the target's CPU time tracing may take.
    pub budget: Budget,
    /// Patch even where a rule says that the kernel should count.
    pub force: bool,
    /// When to count.
    pub options: RunOptions,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// Running processes.
    Pids(Vec<u32>),
    /// A command to start: the program and its arguments.
    Command(Vec<OsString>),
}

impl Default for RequestTarget {
    /// No process.
    fn default() -> RequestTarget {
        RequestTarget::Pids(Vec::new())
    }
}

/// What counts are split by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Each thread separately.
    Thread,
    /// Threads with the same name together.
    Comm,
    /// Each value of this argument.
    Argument(u8),
    /// Each scope that the program enters.
    Scope,
}

/// How much of the target's CPU time tracing may take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Budget {
    /// All of it: nothing is sampled, counts are exact.
    #[default]
    Off,
    /// A limit in percent.
    Percent(f64),
}

impl Budget {
    /// Returns the part of the target's CPU time; `None` if there is no limit.
    pub fn share(self) -> Option<f64> {
        match self {
            Budget::Off => None,
            Budget::Percent(percent) => Some(percent / 100.0),
        }
    }
}

/// Receives reports while the driver runs.
pub trait Observer {
    /// Receives a past interval.
    fn interval(&mut self, interval: &Interval);
    /// Receives the calls recorded since the last report, in the order of their beginning.
    fn calls(&mut self, calls: &[Call<'_>]);
    /// Receives the accesses to watched variables since the last report, in their order.
    fn accesses(&mut self, _accesses: &[Access<'_>]) {}
    /// Receives the counts of a past interval.
    fn counts(&mut self, _counts: &Counts) {}
    /// Receives the counts by scope of a past interval.
    fn scopes(&mut self, _scopes: &ScopeCounts) {}
    /// Returns whether calls must be reported; otherwise they are only read and counted.
    fn wants_calls(&self) -> bool {
        true
    }
    /// Returns whether to report the progress now. The driver asks in each turn of its loop, so the
    /// answer must be cheap and mostly `false`.
    fn wants_progress(&mut self) -> bool {
        false
    }
    /// Receives what the run has counted so far.
    fn progress(&mut self, _progress: &Progress) {}
    /// Receives what a run of [`stat`](crate::stat()) has counted so far.
    fn counts_so_far(&mut self, _counts: &[Count]) {}
    /// Receives a note for the user to see now.
    fn note(&mut self, note: &Note);
}

/// What a run has counted so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The number of hits, waits or accesses.
    pub hits: u64,
    /// The cost of these hits; `None` while the price of a hit is unknown.
    pub cost: Option<Cost>,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was observed, and its cost.
    pub session: Session,
    /// The status of a command that was started; 128 + N if signal N ended it.
    pub exit_status: Option<i32>,
}
