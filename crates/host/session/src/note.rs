//! Notes: data on what a reader must know before trusting the numbers.
//!
//! INVARIANT: a note is a kind with its data, never a sentence, because programs match on the kind, and reports group
//! notes by kind. A `why` is the text of an error or refusal. Equal causes must have equal texts, because reports
//! also group notes by `why`.
//!
//! Each new kind needs a severity here and a sentence in tiptoe-report. The compiler demands both, because no `match`
//! on these enums may have a `_` arm; xtask checks this.
#![expect(missing_docs, reason = "the doc of a kind explains its fields")]

use std::mem::discriminant;

use serde::{Deserialize, Serialize};

use crate::Process;

/// What a note means for the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The numbers are incomplete, or mean something else than requested.
    Warning,
    /// The numbers are complete, and mean what was requested.
    Plain,
}

/// Defines [`Note`], and an enum for the kinds of each area. The word before a kind's name is its severity. `by
/// FIELD` means that two notes of this kind are alike only if their FIELD is equal. `because FIELD` means the same,
/// but the comparison ignores digits.
macro_rules! notes {
    ($($(#[$doc:meta])* $area:ident($kinds:ident) {
        $(
            $(#[$kind_doc:meta])*
            $severity:ident $kind:ident $({ $($field:ident: $type:ty),* })? $(by $meaning:ident)? $(because $why:ident)?;
        )*
    })*) => {
        /// A note, by its subject.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(tag = "area", content = "note", rename_all = "kebab-case")]
        pub enum Note {
            $($(#[$doc])* $area($kinds),)*
        }

        impl Note {
            /// The number of kinds of all subjects.
            pub const KIND_COUNT: usize = [$($(stringify!($kind)),*),*].len();

            /// Returns the meaning for the numbers.
            pub fn severity(&self) -> Severity {
                match self {
                    $($(Note::$area($kinds::$kind { .. }) => Severity::$severity,)*)*
                }
            }

            /// Returns whether both notes have the same kind and, if the kind has `by` or `because`, equal fields
            /// there. Reports print only the first few such notes.
            pub fn is_like(&self, other: &Note) -> bool {
                match (self, other) {
                    $($($((
                        Note::$area($kinds::$kind { $meaning: one, .. }),
                        Note::$area($kinds::$kind { $meaning: other, .. }),
                    ) => one == other,)?
                    $((
                        Note::$area($kinds::$kind { $why: one, .. }),
                        Note::$area($kinds::$kind { $why: other, .. }),
                    ) => cause(one.clone()) == cause(other.clone()),)?)*)*
                    $((Note::$area(one), Note::$area(other)) => {
                        discriminant(one) == discriminant(other)
                    })*
                    $((Note::$area(_), _) => false,)*
                }
            }
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[cfg_attr(test, derive(schemars::JsonSchema))]
            #[serde(tag = "kind", rename_all = "kebab-case")]
            pub enum $kinds {
                $($(#[$kind_doc])* $kind $({ $($field: $type),* })?,)*
            }

            impl From<$kinds> for Note {
                fn from(note: $kinds) -> Note {
                    Note::$area(note)
                }
            }
        )*
    };
}

notes! {
    /// A note on the traced processes: how each trace began and ended.
    Process(ProcessNote) {
        /// SIGINT was ignored when tiptoe was started, so Ctrl-C does not end the trace.
        Plain SigintIgnored;
        /// The trace is over, and the report waits for the command's end. Printed only while it runs.
        Plain WaitsForCommand;
        /// The command continues after a forwarded signal.
        Plain CommandContinues { signal: i32 };
        /// The command ran already when counting began.
        Warning StartedLate;
        /// A signal interrupted tiptoe after it had attached to `attached` processes. Processes in `missing` are not
        /// counted.
        Warning BrokenOff { signal: i32, attached: u64, missing: Vec<Process> };
        /// The process ended before tiptoe had attached to it. Other processes are counted.
        Warning EndedInAttach { process: Process };
        /// tiptoe attached to this process later than to the first one, so earlier waits are missing.
        Plain AttachedLater { process: Process, after_ns: u64 };
        /// tiptoe was interrupted before it had probed all requested functions of this process.
        Warning FunctionsMissing { process: Process, missing: u64, functions: u64 };
        /// tiptoe could not make the agent detach.
        Plain NotDetached { process: Process, why: String } because why;
        /// The trace of a process ended before the process did.
        Warning TraceEnded { process: Process, cause: EndCause, after_ns: u64 } by cause;
        /// The process ended; `signal` is the signal that ended it, if any.
        Warning Ended { process: Process, signal: Option<i32>, after_ns: u64 } by signal;
        /// The run ended within the time of `--delay`.
        Warning EndedInDelay;
        /// Child processes run the same program and are not traced.
        Plain UntracedChildren { children: u64, comm: String };
    }

    /// A note on functions and on the libraries that contain them.
    Function(FunctionNote) {
        /// A requested function is not in the program but in a library, where `spec` is the event's name.
        Plain FoundInLibrary { function: String, spec: String };
        /// Functions of a stripped file have no names; `remedy` says how to get the names.
        Plain NoSymbols { path: String, nameless: u64, functions: u64, remedy: String };
        /// A file or its debug file was read only in part.
        Warning FileTooLarge { path: String };
        /// The event `spec` matches no loaded function yet. Printed only while the run lasts.
        Plain WaitsForLibrary { spec: String };
        /// The event `spec` matched nothing. If `is_unread`, some libraries were closed before tiptoe read them.
        Warning NothingMatched { spec: String, is_unread: bool } by is_unread;
        /// A library was probed after its constructors had run.
        Warning ProbedLate { library: String, after_ms: u64 };
        /// How often a library's code ran before its probes were set.
        Warning RanUnprobed { times: u64 };
        /// Libraries that were just loaded could not be probed.
        Warning NotProbed { why: String } because why;
        /// Another tracer probed the same functions.
        Warning OtherTracer { events: Vec<String> };
        /// Another tracer removed its probes from places that tiptoe patches.
        Warning OtherTracerLeft { pid: u32, times: u64 };
        /// The program moved the code of these functions, or mapped the code a second time. Calls at the other
        /// addresses are not counted.
        Warning CodeMoved { events: Vec<String> };
        /// The event's probe, a trap instruction, was hit too often, so tiptoe disabled it.
        Warning TrapSwitchedOff { event: String, hits: u64 };
        /// The function of `--under` was never called.
        Warning NeverCalled { function: String };
        /// How often the function of `--under` was called.
        Plain Called { function: String, calls: u64 };
        /// Some calls of the function of `--under` could not be traced to their return, so hits inside are not
        /// counted.
        Warning CallsNotFollowed { function: String, calls: u64 };
        /// Counting calls cost more than the budget, which limits only timing and recording. If `has_least`, a
        /// function's count is a lower bound, because its trap was disabled.
        Plain AboveBudget { budget_millionths: u64, has_least: bool };
    }

    /// A note on what the kernel counts instead of the agent, tiptoe's library in the process.
    Kernel(KernelNote) {
        /// The kernel counts everything, because the agent does not enter the process; `pid` is absent if tiptoe
        /// starts the process.
        Plain Traces { pid: Option<u32>, why: String } because why;
        /// The kernel counts these events instead of the agent.
        Plain Counts { events: Vec<String>, why: String } because why;
        /// The kernel refuses all probes.
        Plain TakesNoProbe { why: String } because why;
        /// The kernel counts only in the threads that ran when tracing began.
        Warning CountsInThreads { threads: u64 };
        /// Threads may be missing, because some kept starting while events were opened.
        Warning ThreadsMissing;
        /// The kernel continued to count after the process called exec.
        Plain CountedOn { process: Process };
        /// The user requested times of these events, but the kernel only counts their calls.
        Warning Untimed { events: Vec<String> };
        /// The kernel cannot split counts as `--by` requests.
        Warning Unsplit;
        /// The kernel counts the event only for a part of the time, to keep the budget.
        Warning InWindows { event: String };
        /// The time that BPF programs took at task switches of other processes.
        Plain OthersCost { ns: u64 };
    }

    /// A note on scopes.
    Scope(ScopeNote) {
        /// Only the wall time in scopes is known, not their CPU time and events.
        Warning Uncharged { why: String } because why;
        /// The process entered no scopes.
        Plain NeverEntered { process: Process };
        /// The scopes of the process are unknown, because it has no agent.
        Warning Unseen { process: Process };
    }

    /// A note on waits for locks.
    Lock(LockNote) {
        /// The kernel's tracepoints record the waits in one function, because the agent cannot.
        Plain PlaceInKernel { place: String, why: String } because why;
        /// The kernel's tracepoints record all waits of a process. `why` is absent if the user chose this. `call_ns`
        /// is the mean cost of a futex call; absent without calls.
        Plain InKernel { process: Process, why: Option<String>, call_ns: Option<u64> } because why;
        /// `--budget` does not limit the waits that the kernel's tracepoints report.
        Warning NoBudget;
        /// The reported waits are those of Go's runtime, not of goroutines.
        Warning Go;
        /// Call sites have no names, because the kernel hides its addresses.
        Warning CallsitesHidden;
        /// Some waits have no call site, because their stack could not be stored.
        Warning StacksLost { waits: u64 };
    }

    /// A note on counts of events.
    Stat(StatNote) {
        /// The kernel refused BPF, so each cgroup has events of its own.
        Warning CgroupsByEvents { why: String };
        /// The kernel refused both BPF and events of cgroups, so the counts are from the cgroups' files.
        Warning CgroupsByFiles { why: String };
        /// No cgroup ever matched these patterns.
        Warning UnmatchedPatterns { patterns: Vec<String> };
        /// Some removed cgroups are not listed. The parents' counts include theirs.
        Plain Forgotten { cgroups: u64 };
        /// A fault while cgroups were counted, and how often it happened.
        Warning Amiss { what: CgroupFault, count: u64 } by what;
        /// The cost of a hit cannot be measured without this tracepoint.
        Warning HitCostUnknown { tracepoint: String };
        /// The cost of a task switch could not be measured.
        Warning SwitchCostUnknown;
    }

    /// A note on watched variables. A variable's pointers are the pointers that lead to it, as in `list->head`.
    Watch(WatchNote) {
        /// An exec ended the watch.
        Warning Exec { process: Process, after_ns: u64 };
        /// The variable's pointers led to no memory at first. The watch began when the program set them.
        Warning PointersSet { variable: String, after_ns: u64 };
        /// The variable's pointers led to another address for the first time.
        Plain Moved { variable: String, from: u64, to: u64, after_ns: u64 };
        /// The variable's pointers lead to no memory any more. The last address is watched until they do again.
        Plain PointersLost { variable: String, address: u64, after_ns: u64 };
        /// The variable's pointers never led to memory, so nothing was counted.
        Warning NeverFound { variable: String };
        /// The variable's pointers led to the address of `other`, another watched variable. Accesses count only for
        /// `other`.
        Warning SameAddress { variable: String, other: String };
        /// How often the variable's address changed.
        Warning MovedTimes { variable: String, times: u64 };
        /// The variable does not exist any more.
        Warning Ended { variable: String, cause: VariableEnd, after_ns: u64 } by cause;
        /// The variable belongs to a thread. Other threads accessed it after tiptoe had last seen its thread, so the
        /// memory may have been reused.
        Warning StackReused { variable: String, seen_ns: u64 };
        /// An allocator's function accessed the variable, so its memory may have been freed.
        Warning Freed { variable: String, function: String, after_ns: u64 };
        /// Other processes may share the variable's memory.
        Warning Shared { variable: String };
        /// The watch moved from all CPUs to its process's threads, because other processes hit the same addresses.
        Warning MovedToThreads;
        /// The watch was disabled in parts of this many periods of the budget, because other processes hit the same
        /// addresses. `why` says why the watch could not move to its process's threads.
        Warning RestedForOthers { windows: u64, why: Option<String> };
        /// The debug information of a file takes too long to read, so source lines and inlined functions are missing.
        Plain SourcesUnread { file: String };
        /// The program called unshare(2) or setns(2) while several threads ran. The agent's thread ended before each
        /// call, which closed its breakpoints, and a new one opened them again. Hits in between are missing.
        Warning AgentLeft { times: u64 };
        /// The accounting of debug registers had no room for threads that inherited breakpoints. Their hits are
        /// counted.
        Plain NotAccounted { threads: u64 };
    }

    /// A remark beside an event.
    Event(EventNote) {
        /// Several functions have this name. Their hits are counted together.
        Plain SameName { functions: u64 };
        /// The function that the resolver of an indirect function (IFUNC) chose.
        Plain Selected { function: String };
        /// The function's inlined copies are not counted. `within` has the first functions that contain such a copy.
        Warning Inlined { places: u64, within: Vec<String> };
        /// The function's inlined copies are not counted. There is too much debug information to look for them.
        Warning InlinedUnknown;
        /// Some threads had no room for all values of `--by`.
        Warning ValuesWithoutRoom;
        /// Each hit is a trap, because no jump to tiptoe's code could be placed in the function.
        Plain Trap;
    }
}

/// Returns a cause without digits, so that causes that differ only in a process id are alike.
fn cause(why: impl Into<Option<String>>) -> Option<String> {
    let why: Option<String> = why.into();
    why.map(|why| why.replace(|letter: char| letter.is_ascii_digit(), ""))
}

/// What a program did that ended its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EndCause {
    /// The program called exec.
    Exec,
    /// The program put itself under seccomp.
    Seccomp,
    /// The program gave up rights, or entered another namespace.
    Confined,
    /// The program has its system calls dispatched to a signal handler (prctl(2)).
    Dispatch,
    /// The program began to run a thread whose thread-local storage its C library had not set up.
    Storage,
}

/// What went wrong while cgroups were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CgroupFault {
    /// Task switches from tasks of which tiptoe had no record.
    UnknownTasks,
    /// Tasks for which there was no room. Nothing was counted for them.
    NoRoomForTask,
    /// Switches that the kernel did not report. This fault is noted only if tiptoe reads events at switches.
    UnreportedSwitches,
    /// Switches of tasks whose existence the kernel did not report.
    UnreportedTasks,
    /// Switches that the kernel reported but did not include in its own number of switches.
    SurplusSwitches,
    /// Ends of tasks that were not reported in time.
    UnreportedEnds,
    /// Switches at which tiptoe's BPF program did not run, because it already ran on the CPU.
    MissedSwitches,
    /// Switches from tasks that had been moved while they ran.
    MovedTasks,
    /// Switches to cgroups for which there was no room.
    NoRoomForCgroup,
    /// Events that could not be read on a CPU.
    UnreadEvents,
    /// Reports of created or removed cgroups, or of moved tasks, for which there was no room.
    NoRoomForChange,
}

/// Why a variable ceased to exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VariableEnd {
    /// The variable's thread ended.
    Thread,
    /// The variable's memory was unmapped.
    Unmapped,
}
