//! All messages of this crate. Other modules only choose variants of [`Error`].
#![expect(missing_docs, reason = "the message of a variant says what it means")]

use std::io;
use std::path::PathBuf;

use tiptoe_attach::AttachError;
use tiptoe_attach::inject::InjectError;
use tiptoe_kernel::watchpoints::{MOST_CONDITIONS, MOST_VARIABLES};
use tiptoe_schedule::TooManyPinned;
use tiptoe_symbol::variable::{VariableError, WatchError};

use crate::words::few;
pub use hint::{AgentSubstitute, InsteadOfFunction};
pub use reason::{DropReason, Reason};

mod hint;
mod reason;

/// A failed run must have left nothing in the target.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // Other crates' errors.
    #[error(transparent)]
    Kernel(#[from] tiptoe_kernel::Error),
    #[error(transparent)]
    System(#[from] tiptoe_sys::host::Error),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    AttachByThread(AttachError),
    #[error(transparent)]
    Inject(#[from] InjectError),

    // The target.
    #[error("process {0} is this tiptoe itself")]
    IsTiptoe(u32),
    #[error("{tid} is a thread of process {pid} ({comm})")]
    IsThread { tid: u32, pid: u32, comm: String },
    #[error("process {pid} ({comm}) is a thread of the kernel")]
    IsKernelThread { pid: u32, comm: String },
    #[error(
        "process {pid} ({comm}) has ended: it is a zombie, which its parent has not waited for"
    )]
    IsZombie { pid: u32, comm: String },
    #[error("toggling needs a running process")]
    IsCommand,
    #[error("interrupted before the command began")]
    Interrupted,
    #[error("cannot hold a file open: {0}")]
    FileNotHeld(io::Error),

    // Specs.
    #[error("cannot read {}: {error}", path.display())]
    UnreadableProgram { path: PathBuf, error: ObjectFault },
    #[error("cannot read {0}")]
    UnreadableBinary(tiptoe_sys::host::Error),
    #[error("process {pid} has no binary `{binary}` mapped")]
    NoBinary {
        pid: u32,
        binary: String,
        mapped: Vec<String>,
        /// Whether the target is a command that has not begun.
        is_new: bool,
    },
    #[error("{}: {error}", path.display())]
    NoFunction {
        path: PathBuf,
        error: tiptoe_symbol::Error,
        instead: Option<Box<InsteadOfFunction>>,
    },
    /// The command may start `program`, which may have the function.
    #[error("{error}")]
    InLauncher { error: Box<Error>, program: String },
    #[error("`{0}` matched nothing that was loaded")]
    NothingLoaded(String),
    #[error("cannot probe {event}: {why}")]
    NoProbe { event: String, why: Reason },
    #[error("--under: {0}")]
    Under(Box<Error>),
    #[error("--under: calls of {event} cannot be followed: {why}")]
    NoGate { event: String, why: Reason },

    // The agent.
    #[error("the agent cannot enter {target}: {why}")]
    AgentKeptOut {
        target: String,
        why: Reason,
        substitute: AgentSubstitute,
    },
    #[error("the agent cannot enter: {why}; {}{error}", match **error {
        Error::AgentOnly(_) => "and ",
        _ => "without the agent: ",
    })]
    WithoutAgent { why: Reason, error: Box<Error> },
    #[error("the agent did not enter `{word}`: {why}; {error}")]
    AgentNotLoaded {
        word: String,
        why: Reason,
        error: Box<Error>,
    },
    #[error("nothing was counted")]
    NothingCounted,
    #[error("another tiptoe traces process {0}")]
    OtherTiptoe(u32),
    #[error("no segments were offered")]
    NoSegments,
    #[error("the agent could not begin: {0}")]
    AgentRefused(io::Error),
    #[error("process {0} ended, or ran another program")]
    TargetLost(u32),
    #[error("the agent in process {0} did not start in time")]
    AgentLate(u32),
    #[error("the agent is not in the process any more")]
    AgentLeft,
    #[error("the agent's thread was not found among the program's")]
    NoAgentThread,
    #[error("the agent's thread could not give up its rights")]
    AgentHasRights,
    #[error("the agent's TLS is too far")]
    TlsTooFar,
    #[error("it mapped the memory that was planned for the agent's hooks")]
    NoRoomForHooks,
    #[error("{0} may give a thread other thread-local storage, in which the agent must not write")]
    ReplacesBlock(String),
    #[error("a thread runs on thread-local storage that is not its C library's")]
    ForeignBlock,
    #[error(
        "not all of its threads could be stopped for a moment, and one that blocks SIGTRAP would die at a trap byte"
    )]
    NotStopped,
    #[error("{}", Reason::BrokenOff)]
    BrokenOff,
    #[error("cannot read the {what}: {error}")]
    UnreadableSlabs {
        what: &'static str,
        error: io::Error,
    },

    // The kernel in place of the agent.
    #[error("{}", .0.why())]
    AgentOnly(AgentOption),
    #[error("{}, so tiptoe does not use such probes", Reason::ReturnProbes)]
    ReturnProbes,

    // Locks.
    #[error(
        "{0} is a 32-bit program: neither the agent nor the kernel's futex tracepoints report its locks"
    )]
    LocksOf32Bit(String),
    #[error("only the agent measures how long a lock is held, and it is not in the program")]
    HoldWithoutAgent,
    #[error("--hold in process {pid}: {why}")]
    BadHold { pid: u32, why: Reason },
    #[error("process {pid} cannot be read: {error}")]
    UnreadableWaits { pid: u32, error: io::Error },

    // Scopes.
    #[error("process {pid} ({comm}) enters no scopes: no library in it reports any")]
    NoScopes { pid: u32, comm: String },
    #[error("{0} cannot be charged to scopes: the CPU counts it, not the kernel")]
    CpuCounter(String),
    #[error("{0} events are too many to charge to scopes")]
    ManyScopeEvents(usize),

    // Watched variables.
    #[error("addresses differ between processes, so only one process can be watched")]
    ManyProcesses(Vec<u32>),
    #[error("cannot read the memory of process {pid}: {error}")]
    UnreadableMemory { pid: u32, error: io::Error },
    #[error("the process has no program mapped")]
    NoProgram,
    #[error("'{}': {error}", text.escape_debug())]
    BadVariable { text: String, error: WatchError },
    #[error("{0}")]
    Variable(#[from] VariableError),
    #[error("`{expression}` would be at {address:#x}, where no memory is mapped")]
    Unmapped {
        expression: String,
        address: u64,
        /// `None` for a command that has not begun.
        pid: Option<u32>,
    },
    #[error("`{one}` and `{other}` are at the same address")]
    SameAddress { one: String, other: String },
    #[error("only {MOST_VARIABLES} variables can be watched at a time")]
    ManyVariables,
    #[error("no debug register is left for all that are pinned: {0}")]
    ManyPinned(TooManyPinned),
    #[error("--rotate: turns are 10 ms or longer")]
    ShortTurns,
    #[error("--thread is only for thread-local variables, unlike {}", few(.0))]
    SharedByThreads(Vec<String>),
    #[error("{}", match count {
        0 => format!("the process has no thread `{}`", wanted.escape_debug()),
        _ => format!("{count} threads are called `{}`", wanted.escape_debug()),
    })]
    NotOneThread {
        wanted: String,
        count: usize,
        threads: Vec<String>,
    },
    #[error("cannot find the variables of thread {tid} ({comm})")]
    NoThreadPointer { tid: u32, comm: String },
    #[error("--when takes {MOST_CONDITIONS} comparisons at most")]
    ManyConditions,
    #[error("--when '{part}': {fault}")]
    BadCondition { part: String, fault: WhenFault },
    #[error("--when compares whole numbers, and `{0}` is a floating-point number")]
    WhenFloat(String),
    #[error("{option} compares values, and `{name}:x` is code")]
    ValuesOfCode { option: String, name: String },

    // Breakpoints.
    #[error("{error}")]
    NoSlot {
        error: tiptoe_kernel::Error,
        debuggers: Vec<String>,
        perf_events: Vec<String>,
    },
    #[error("counters do not go with other events, except by scope")]
    CountersWithOthers,
    #[error("locks of one kind are requested twice")]
    LocksTwice,
    #[error("the kernel cannot watch variables in a run that counts other events, too")]
    VariablesInKernel,
    #[error("the agent shares no memory for hits")]
    NoHits,
    #[error("the process is not allowed to set breakpoints on itself")]
    BreakpointsDenied,
    #[error("the process may open too few files for its breakpoints: each thread needs {0}")]
    BreakpointFiles(usize),
    #[error("the program starts threads faster than breakpoints can be opened for them")]
    ThreadsTooFast,
    #[error("the kernel refused the breakpoints")]
    BreakpointsRefused,
    #[error("the agent could not set breakpoints: {0}")]
    NoBreakpoints(io::Error),

    // Events by perf's names.
    #[error("{}", match has_v1 {
        false => "no cgroups are mounted here",
        true => "there are only cgroups of version 1 here, and --for-each-cgroup counts those of version 2",
    })]
    NoCgroups { has_v1: bool },
    #[error("--for-each-cgroup: a name is missing between two commas")]
    NamelessCgroup,
    #[error("no cgroup '{name}'")]
    NoSuchCgroup { name: String, near: Vec<String> },
    #[error("nothing can be counted here: no {}", .0.join(", no "))]
    NothingCounts(Vec<String>),
}

impl Error {
    pub(crate) fn unreadable(what: &'static str) -> impl Fn(io::Error) -> Error + Copy {
        move |error| Error::UnreadableSlabs { what, error }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum AgentOption {
    Record,
    Filter,
    Under,
    By,
}

impl AgentOption {
    pub fn why(self) -> &'static str {
        match self {
            Self::Record => "the kernel's uprobes cannot record calls",
            Self::Filter => "the kernel's uprobes cannot filter by argument",
            Self::Under => {
                "the kernel's uprobes cannot distinguish hits below a function from others"
            }
            Self::By => {
                "the kernel's uprobes count for the whole process, so `--by` cannot split the counts"
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ObjectFault {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Image(#[from] tiptoe_symbol::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum WhenFault {
    #[error("it has no comparison")]
    NoOperator,
    #[error("`{0}` is not old, new or a number")]
    BadOperand(String),
    #[error("it compares two numbers, so the result never changes")]
    Constant,
}
