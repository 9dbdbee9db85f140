//! All messages of failures; other modules only make [`Failure`]s.

use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};

use tiptoe_event::counter::CounterFault;
use tiptoe_event::{CounterError, OtherKind, ShellWord, SpecError};
use tiptoe_sys::host::destination::DestinationError;

use crate::terminal;

pub const FAILED: u8 = 2;

/// The hint for ids separated by spaces, as `pidof` prints them. clap takes only the first id as the value of `-p`.
pub const PIDS_HINT: &str = "process ids are separated by commas: -p 1,2";

pub const NOT_A_NUMBER: &str = "not a whole number from 0 on";

/// Why tiptoe failed: the message says what failed, in one line, and [`Failure::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Run(#[from] tiptoe_collector::Error),
    #[error("{what}")]
    Usage { what: String, hint: String },

    #[error("a command is missing")]
    NoCommand,
    #[error("unexpected argument '{0}'")]
    UnexpectedArgument(String),
    #[error("'{word}' is no {wanted}")]
    IsPid { word: String, wanted: &'static str },
    #[error("{}", match .0 {
        TargetOf::Counters | TargetOf::Scopes => "no process to count",
        _ => "no process to trace",
    })]
    NoTarget(TargetOf),
    #[error("-a is not implemented yet")]
    WholeSystem(TargetOf),
    #[error("/proc cannot be read: {0}")]
    UnreadableProcesses(io::Error),
    #[error("no running process is named '{0}'")]
    NoSuchProcess(String),
    #[error("--now needs a running process, not a command to start")]
    NowOfCommand,

    #[error("--via kernel-task works only with `tiptoe watch`")]
    ViaKernelTask,
    #[error("--force does not go with {0}: nothing enters the process")]
    ForceWith(&'static str),
    #[error("--budget does not go with --now: nothing is traced")]
    BudgetOfNow,
    #[error("--budget does not go with --kernel: the kernel times each contended wait")]
    BudgetOfKernelLocks,
    #[error("--budget does not go with --via kernel: the kernel times each wait")]
    BudgetOfKernelWaits,
    #[error("{0} without --kernel: mmap_lock is a lock of the kernel")]
    WithoutKernel(&'static str),
    #[error("--via agent does not go with --kernel: only the kernel sees its own locks")]
    AgentOfKernelLocks,
    #[error("--by {0} without --kernel")]
    ByWithoutKernel(&'static str),
    #[error("--by scope with --kernel: the kernel does not know a program's scopes")]
    KernelByScope,
    #[error("--interval for locks is not implemented yet")]
    LockIntervals,
    #[error("{0} for variables is not implemented yet")]
    WatchOption(&'static str),
    #[error("--histograms without --latency: no call is timed")]
    HistogramsUntimed,
    #[error("--slower without --latency: no call is timed")]
    SlowerUntimed,
    #[error("{0} does not go with --record, which prints single calls")]
    WithRecord(&'static str),
    #[error("{0} does not go with --via kernel, which only counts")]
    WithViaKernel(&'static str),
    #[error("{0} does not go with --by scope, which counts one program's threads")]
    WithByScope(&'static str),
    #[error("--per-cpu without -a: a process is not counted by CPU")]
    PerCpuOfProcess,
    #[error("-r without -- CMD: there is nothing to run again")]
    RepeatOfNothing,
    #[error("--top without --for-each-cgroup or --by scope: all events are printed")]
    TopOfEvents,
    #[error("-x: a separator is missing")]
    NoSeparator,
    #[error("-x: a quote or an end of line cannot separate fields")]
    BadSeparator,

    #[error("'{}': {error}", text.escape_debug())]
    BadSpec { text: String, error: SpecError },
    #[error("'{}:' is not implemented yet", .0.word())]
    NoSuchKind(OtherKind),
    #[error("'{}' is an event of `tiptoe {other}`, not of `tiptoe {command}`", text.escape_debug())]
    OfOtherCommand {
        text: String,
        command: &'static str,
        other: &'static str,
    },
    #[error("the event option '{0}' is not implemented yet")]
    NoSuchOption(String),
    #[error("--under '{}': {error}", text.escape_debug())]
    BadGate { text: String, error: SpecError },
    #[error("--under '{}': not one function", .0.escape_debug())]
    NotOneGate(String),
    #[error("'{spec}' is not an entry, and --latency times from entry to return")]
    TimedInside { spec: String, entry: String },
    #[error("'{spec}' is a return, {}", match *option {
        "--by scope" => format!("and {option} needs an entry"),
        // A returning function may have overwritten the registers of its arguments.
        _ => format!("which has no arguments for {option}"),
    })]
    OfReturn {
        spec: String,
        option: &'static str,
        entry: String,
    },
    #[error("{what}")]
    BadCounter {
        what: String,
        fault: CounterFault,
        near: Vec<&'static str>,
    },

    #[error("{} cannot be written: {why}", path.display())]
    NotWritten {
        path: PathBuf,
        why: DestinationError,
    },
    #[error("standard output cannot be written: {0}")]
    HelpNotWritten(io::Error),
    #[error("`{}` cannot be written: {error}", folder.display())]
    NotGenerated { folder: PathBuf, error: io::Error },
    #[error("`{}` exists", .0.display())]
    FolderExists(PathBuf),
    #[error("`{}` cannot be created: {error}", folder.display())]
    FolderNotCreated { folder: PathBuf, error: io::Error },
    #[error("the report has no JSON form: {0}")]
    NoJson(#[from] serde_json::Error),
    #[error("--ready-fd {fd} cannot be written to: {error}")]
    BadReadyFd { fd: i32, error: io::Error },
    #[error("signals cannot be handled: {0}")]
    NoSignals(io::Error),

    #[error("only root can enable what is missing")]
    NotRoot,
    #[error("`{program}` cannot be run: {error}")]
    FixNotRun {
        program: &'static str,
        error: io::Error,
    },
    #[error("`{line}` failed: {status}")]
    FixFailed { line: String, status: ExitStatus },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    #[error("not a time (write 2, 1.5s, 500ms or 3m)")]
    Time,
    #[error("not the time of a call (write 1ms, 500us or 2s)")]
    CallTime,
    #[error("not a process id (by name: --comm NAME)")]
    Pid,
    #[error("not a process id (`pidof NAME` prints it)")]
    PidAlone,
    #[error("expected one of agent, kernel, auto")]
    Via,
    #[error("not a budget (write 1%, 0.5 or off)")]
    Budget,
}

#[derive(Clone, Copy, Debug)]
pub enum TargetOf {
    Functions,
    Locks,
    KernelLocks,
    Variables,
    Counters,
    Scopes,
}

impl Failure {
    pub fn report(&self) -> ExitCode {
        terminal::say(format!("error: {self}"));
        if let Some(hint) = self.hint() {
            terminal::say(format!("hint: {hint}"));
        }
        ExitCode::from(FAILED)
    }

    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Run(error) => return error.hint(),
            Self::Usage { hint, .. } => hint.clone(),
            Self::TimedInside { entry, .. } => {
                format!("--latency {}", ShellWord(entry.as_bytes()))
            }
            Self::OfReturn { entry, .. } => format!("'{entry}' is the entry"),
            Self::OfOtherCommand { other, .. } => format!("tiptoe {other} --help"),
            Self::BadCounter { near, .. } if !near.is_empty() => {
                format!("similar names: {}", near.join(", "))
            }
            _ => self.fixed_hint()?.to_owned(),
        })
    }

    fn fixed_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoCommand => "tiptoe --help",
            Self::UnexpectedArgument(_) => "tiptoe lock --help",
            Self::IsPid { .. } => PIDS_HINT,
            Self::NoTarget(of) | Self::WholeSystem(of) => match of {
                TargetOf::Functions => "-p PID, --comm NAME or -- CMD chooses what to trace",
                TargetOf::Locks => {
                    "-p PID, --comm NAME or -- CMD chooses whose locks; --kernel watches the kernel's own"
                }
                TargetOf::KernelLocks => {
                    "-a, -p PID, --comm NAME or -- CMD chooses whose waits count"
                }
                TargetOf::Variables => "-p PID, --comm NAME or -- CMD chooses whose variables",
                TargetOf::Counters => "-a, -p PID or -- CMD chooses what to count",
                TargetOf::Scopes => "-p PID or -- CMD chooses whose scopes",
            },
            Self::NoSuchProcess(_) => "`ps -eo pid,comm` lists the names",
            Self::NowOfCommand => "-p PID or --comm NAME",
            Self::ViaKernelTask | Self::AgentOfKernelLocks => "leave out --via",
            Self::ForceWith(_) => "leave out --force",
            Self::BudgetOfNow => "leave out --budget",
            Self::BudgetOfKernelLocks | Self::BudgetOfKernelWaits => {
                "leave out --budget: the report says what it cost"
            }
            Self::WithoutKernel(_) => "add --kernel",
            Self::ByWithoutKernel(_) => "--by lock, callsite, thread, type or scope",
            Self::KernelByScope => "leave out --kernel: scopes are for the program's locks",
            Self::LockIntervals => "--duration ends a trace, and the report is printed then",
            Self::WatchOption(_) => "--duration ends a watch, and the report is printed then",
            Self::HistogramsUntimed => "--latency --histograms draws the times of each event",
            Self::SlowerUntimed => {
                "--latency --slower 1ms times the calls that take longer than 1 ms"
            }
            Self::WithRecord(_) => "leave out one of the two",
            Self::WithViaKernel(_) => "--via agent or --via auto",
            Self::WithByScope(_) => {
                "leave it out; -p PID or -- CMD chooses the program, --csv or --json is for scripts"
            }
            Self::PerCpuOfProcess => "-a --per-cpu counts the whole system, by CPU",
            Self::RepeatOfNothing => "-I MS counts in intervals",
            Self::TopOfEvents => "leave out --top",
            Self::NoSeparator | Self::BadSeparator => "for example `-x,` or `-x ';'`",
            Self::BadSpec { .. } | Self::NoSuchKind(_) | Self::NoSuchOption(_) => {
                "an event is [BINARY:]FUNCTION[+OFFSET], such as redis-server:dictFind or 'libc.so.6:mem*'"
            }
            Self::BadGate { .. } | Self::NotOneGate(_) => {
                "--under [BINARY:]FUNCTION, such as redis-server:serverCron"
            }
            Self::BadCounter { fault, .. } => match fault {
                CounterFault::Unknown => {
                    "events are named as in `perf list`: cycles, page-faults, rNNN, sched:sched_switch"
                }
                _ => "such as cycles,{instructions,branches}:u,page-faults,cache-misses:D",
            },
            Self::NotWritten { why, .. } => match why {
                DestinationError::NoReader => "start the reader first",
                DestinationError::OwnerLost => {
                    "remove the file first, or -o FILE puts the report in another place"
                }
                _ => "-o FILE puts the report in another place",
            },
            Self::FolderExists(_) | Self::FolderNotCreated { .. } => {
                "name another folder: tiptoe bug FOLDER"
            }
            Self::BadReadyFd { .. } => "in a shell: --ready-fd 3 3>FILE",
            Self::NotRoot => "sudo tiptoe doctor --fix",
            _ => return None,
        })
    }
}

impl From<CounterError<'_>> for Failure {
    fn from(error: CounterError<'_>) -> Failure {
        Failure::BadCounter {
            what: error.to_string(),
            fault: error.fault,
            near: error.nearest().into_iter().flatten().collect(),
        }
    }
}
