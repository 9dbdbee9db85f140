//! A caller's request for a run, the reports while it runs, and its outcome.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use tiptoe_attach::ready::Ready;
use tiptoe_attach::{AttachError, Attached};
use tiptoe_event::{
    Counter, Event, Filter, Kind, Memory, ProbeSpec, UserLocks, Via, WaitSelection,
};
use tiptoe_session::{Access, Call, Cost, Count, Counts, Interval, Note, ScopeCounts, Session};

/// The request for one run.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The shared object to load into targets.
    pub agent: &'static [u8],
    /// The events to count.
    pub events: Vec<Event<'a>>,
    /// The target.
    pub target: RequestTarget,
    /// The program, by file name or path, that is counted instead of the command that starts it.
    pub exec: Option<OsString>,
    /// A command to start. While it runs, `target` is counted.
    pub meanwhile: Option<Vec<OsString>>,
    /// Whether the agent or the kernel counts.
    pub via: Via,
    /// What results are split by. Events that do not support this split use their default.
    pub split: Option<Split>,
    /// The part of the target's CPU time that tracing may take; for watched variables, the part of one CPU's time.
    pub budget: Budget,
    /// Whether the agent enters despite a seccomp filter, or a limit on memory or threads.
    pub force: bool,
    /// What is observed of calls.
    pub calls: CallOptions<'a>,
    /// What is observed of accesses.
    pub accesses: AccessOptions,
    /// What is reported of counters.
    pub counters: CounterOptions,
    /// When to count.
    pub options: RunOptions,
}

/// What is observed of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions<'a> {
    /// Which hits count; all if `None`.
    pub filter: Option<Filter>,
    /// Count only hits during a call of this function, on the same thread.
    pub under: Option<ProbeSpec<'a>>,
    /// Whether calls are timed from their entry to their return.
    pub latency: bool,
    /// Count only calls longer than this, if calls are timed.
    pub slower_ns: Option<u64>,
    /// Whether each call is recorded, and reported during the trace.
    pub record: bool,
    /// Whether the agent looks up a trap's probe only under a lock, never speculatively; for benchmarks.
    pub locked_lookups: bool,
}

/// What is observed of accesses.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// The thread, by number or name, whose thread-local variables are watched.
    pub thread: Option<String>,
    /// Count only accesses that changed the value.
    pub only_changed: bool,
    /// Also report each access separately.
    pub trace: bool,
    /// Count only accesses for which this condition holds.
    pub when: Option<String>,
    /// Also use the debug register that is reserved for debuggers.
    pub all_slots: bool,
    /// How long a variable has its debug register, if there are more variables than registers.
    pub rotate: Option<Duration>,
    /// Report the reservations of debug registers.
    pub stats: bool,
}

/// What is reported of counters.
#[derive(Clone, Debug, Default)]
pub struct CounterOptions {
    /// Also count for each of these cgroups, by path or pattern.
    pub cgroups: Option<Vec<String>>,
    /// Report each CPU separately.
    pub per_cpu: bool,
    /// How many times to run the command; 0 means once.
    pub repeat: u32,
}

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// Running processes.
    Pids(Vec<u32>),
    /// A command to start: the program and its arguments.
    Command(Vec<OsString>),
    /// The whole system.
    System,
}

impl Default for RequestTarget {
    fn default() -> RequestTarget {
        RequestTarget::Pids(Vec::new())
    }
}

/// What results are split by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Each thread separately.
    Thread,
    /// Threads with the same name together.
    Comm,
    /// Each value of this argument.
    Argument(u8),
    /// Each scope (part of its run that the program names).
    Scope,
    /// Each lock.
    Lock,
    /// Each call site; for the kernel's locks, with the site's callers.
    Callsite,
    /// Each type of lock.
    Type,
    /// Each process.
    Process,
    /// Each cgroup of version 2.
    Cgroup,
}

impl Split {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Split::Thread => "thread",
            Split::Comm => "comm",
            Split::Argument(_) => "argument",
            Split::Scope => "scope",
            Split::Lock => "lock",
            Split::Callsite => "callsite",
            Split::Type => "type",
            Split::Process => "process",
            Split::Cgroup => "cgroup",
        }
    }
}

impl<'a> Request<'a> {
    pub(crate) fn probes(&self) -> impl Iterator<Item = ProbeSpec<'a>> {
        self.events.iter().filter_map(|event| match event {
            Event::Probe(probe) => Some(*probe),
            _ => None,
        })
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = Memory<'a>> {
        self.events.iter().filter_map(|event| match event {
            Event::Memory(memory) => Some(*memory),
            _ => None,
        })
    }

    pub(crate) fn user_locks(&self) -> Option<UserLocks<'a>> {
        self.events.iter().find_map(|event| match event {
            Event::UserLocks(locks) => Some(*locks),
            _ => None,
        })
    }

    pub(crate) fn kernel_locks(&self) -> Option<WaitSelection> {
        self.events.iter().find_map(|event| match event {
            Event::KernelLocks(selection) => Some(*selection),
            _ => None,
        })
    }

    /// Returns the requested counters, the leader of each group first.
    pub(crate) fn counter_groups(&self) -> Vec<Vec<Counter<'a>>> {
        let groups = self.events.iter().filter_map(|event| match event {
            Event::Counters(group) => Some(group.events().collect()),
            _ => None,
        });
        groups.collect()
    }

    pub(crate) fn reports_scopes(&self) -> bool {
        self.events.contains(&Event::Scopes)
    }

    pub(crate) fn needs_scopes(&self) -> bool {
        self.reports_scopes() || self.split == Some(Split::Scope)
    }

    /// Divides the budget equally among its requested users (followed calls, waits for locks, and variables), and
    /// returns one part. `None` if there is no limit.
    pub(crate) fn budget_share(&self) -> Option<f64> {
        let is_followed = |probe: ProbeSpec<'_>| probe.spec.kind == Kind::Uretprobe;
        let follows = self.calls.latency || self.calls.record || self.probes().any(is_followed);
        let spenders = [
            follows && self.probes().next().is_some(),
            self.user_locks().is_some(),
            self.variables().next().is_some(),
        ];
        let count = spenders.into_iter().filter(|spends| *spends).count();
        Some(self.budget.share()? / count.max(1) as f64)
    }

    /// Starts a command without an agent. Holds it before its exec, or at the exec of the program in `exec`.
    pub(crate) fn start_alone(&self, command: &[OsString]) -> Result<Attached, AttachError> {
        let mut started = Attached::start_alone(command)?;
        if let Some(name) = &self.exec {
            started.hold_at_program(name)?;
        }
        Ok(started)
    }

    pub(crate) fn is_command(&self) -> bool {
        matches!(self.target, RequestTarget::Command(_))
    }

    pub(crate) fn hit_split(&self) -> Option<Split> {
        use Split::{Argument, Comm, Scope, Thread};
        let of_hits = |split: &Split| matches!(split, Thread | Comm | Argument(_) | Scope);
        self.probes().next()?;
        self.split.filter(of_hits)
    }

    pub(crate) fn user_lock_split(&self) -> Split {
        use Split::{Callsite, Lock, Scope, Thread, Type};
        self.split
            .filter(|split| matches!(split, Callsite | Thread | Type | Scope))
            .unwrap_or(Lock)
    }

    pub(crate) fn kernel_lock_split(&self) -> Option<Split> {
        use Split::{Callsite, Cgroup, Lock, Process, Thread, Type};
        self.split
            .filter(|split| matches!(split, Callsite | Type | Lock | Thread | Process | Cgroup))
    }
}

/// When a run counts, and what ends it.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// How long to wait before counting.
    pub delay: Option<Duration>,
    /// How long to count; if `None`, until the target ends or `stop` is set.
    pub duration: Option<Duration>,
    /// The interval at which the observer gets the new counts.
    pub interval: Option<Duration>,
    /// Set by the caller to end the run and get the results.
    pub stop: Arc<AtomicBool>,
    /// Set by the caller to the signal that set `stop`. A started command gets this signal, too. Otherwise the
    /// command would run on untraced.
    pub hand_on: Arc<AtomicUsize>,
    /// Is notified when counting has begun.
    pub ready: Ready,
}

/// How much of the target's CPU time tracing may take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Budget {
    /// No limit: counts are exact.
    #[default]
    Off,
    /// A limit in percent.
    Percent(f64),
}

impl Budget {
    /// Returns the limit as a part of the target's CPU time; `None` if there is none.
    pub fn share(self) -> Option<f64> {
        match self {
            Budget::Off => None,
            Budget::Percent(percent) => Some(percent / 100.0),
        }
    }
}

/// Receives reports during a run.
pub trait Observer {
    /// Receives what events counted in an interval, at its end.
    fn interval(&mut self, interval: &Interval);
    /// Receives the calls recorded since the last report, ordered by their beginning.
    fn calls(&mut self, calls: &[Call<'_>]);
    /// Receives the accesses to watched variables since the last report, in order.
    fn accesses(&mut self, _accesses: &[Access<'_>]) {}
    /// Receives what counters counted in an interval, at its end.
    fn counts(&mut self, _counts: &Counts) {}
    /// Receives the counts of scopes in an interval.
    fn scopes(&mut self, _scopes: &ScopeCounts) {}
    /// Returns whether recorded calls must be passed to [`Observer::calls`], not only counted.
    fn wants_calls(&self) -> bool {
        true
    }
    /// Returns whether to report the progress now. Must be cheap, because the run's loop calls this after each wait.
    fn wants_progress(&mut self) -> bool {
        false
    }
    /// Receives what the run has counted so far.
    fn progress(&mut self, _progress: &Progress) {}
    /// Receives what a run of `stat` has counted so far.
    fn counts_so_far(&mut self, _counts: &[Count]) {}
    /// Receives a note (a message about the results' limits) to print at once.
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

impl Progress {
    pub(crate) fn plus(self, other: Progress) -> Progress {
        Progress {
            hits: self.hits.saturating_add(other.hits),
            cost: self
                .cost
                .zip(other.cost)
                .map(|(cost, other)| cost.plus(other)),
        }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was observed, and its cost.
    pub session: Session,
    /// The status of a command that was started; 128 + N if signal N ended it.
    pub exit_status: Option<i32>,
}
