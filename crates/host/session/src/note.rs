//! Notes: what the reader must know before trusting the numbers, as data.
//!
//! INVARIANT: a note has a kind and its data, and never a sentence, because programs that read a session match on the
//! kind, and reports fold notes of one kind and meaning. `tiptoe-report` makes the sentences. A `why` is the text of
//! the error or refusal that caused the note, in equal words for equal causes, as in [`Refusal`](crate::Refusal).
//!
//! The enums are exhaustive on purpose: a new kind must choose its severity here and get its sentence in the report, or
//! nothing compiles. For the same reason no `match` on them has a `_` arm here, which xtask checks.
#![expect(missing_docs, reason = "the doc of a kind explains its fields")]

use std::mem::discriminant;

use serde::{Deserialize, Serialize};

use crate::Process;

/// What a note means for the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The numbers lack something, or mean something else than the request.
    Warning,
    /// Everything else.
    Plain,
}

/// Defines [`Note`] and the kinds of each area, each after its severity. Notes of one kind differ in meaning if they differ
/// in the field after `by`.
macro_rules! notes {
    ($($(#[$doc:meta])* $area:ident($kinds:ident) {
        $(
            $(#[$kind_doc:meta])*
            $severity:ident $kind:ident $({ $($field:ident: $type:ty),* })? $(by $meaning:ident)?;
        )*
    })*) => {
        /// A note, by what it is about.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(tag = "area", content = "note", rename_all = "kebab-case")]
        pub enum Note {
            $($(#[$doc])* $area($kinds),)*
        }

        impl Note {
            /// The number of kinds of all areas.
            pub const KIND_COUNT: usize = [$($(stringify!($kind)),*),*].len();

            /// Returns what the note means for the numbers.
            pub fn severity(&self) -> Severity {
                match self {
                    $($(Note::$area($kinds::$kind { .. }) => Severity::$severity,)*)*
                }
            }

            /// Returns whether both notes have one kind and one meaning, so that reports fold them.
            pub fn is_like(&self, other: &Note) -> bool {
                match (self, other) {
                    $($($((
                        Note::$area($kinds::$kind { $meaning: one, .. }),
                        Note::$area($kinds::$kind { $meaning: other, .. }),
                    ) => one == other,)?)*)*
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
    /// A note on the traced processes: how the trace of each began and ended.
    Process(ProcessNote) {
        /// SIGINT was ignored when tiptoe was started, so Ctrl-C does not end the trace.
        Plain SigintIgnored;
        /// The trace is over, and the report waits for the command. Only while the run lasts.
        Plain WaitsForCommand;
        /// The command did not end by a signal that tiptoe forwarded.
        Plain CommandContinues { signal: i32 };
        /// The command ran already when counting began.
        Warning StartedLate;
        /// A signal broke the attach off after some processes: the others are missing.
        Warning BrokenOff { signal: i32, attached: u64, missing: Vec<Process> };
        /// The attach to this process was broken off before all functions were armed.
        Warning FunctionsMissing { process: Process, missing: u64, functions: u64 };
        /// The agent could not be asked to leave.
        Plain NotDetached { process: Process, why: String };
        /// The trace ended before its process.
        Warning TraceEnded { process: Process, cause: EndCause, after_ns: u64 } by cause;
        /// The process ended, by a signal or not.
        Warning Ended { process: Process, signal: Option<i32>, after_ns: u64 } by signal;
        /// The run ended before its delay was over.
        Warning EndedInDelay;
        /// Children run the same program and are not traced.
        Plain UntracedChildren { children: u64, comm: String };
    }

    /// A note on functions and the libraries that have them.
    Function(FunctionNote) {
        /// A function that the program lacks was found in a library; `spec` is its event's name.
        Plain FoundInLibrary { function: String, spec: String };
        /// Functions of a stripped file have no names; `remedy` is how to get them.
        Plain NoSymbols { path: String, nameless: u64, functions: u64, remedy: String };
        /// A file or its debug file was read only in part.
        Warning FileTooLarge { path: String };
        /// A spec matches nothing yet. Only while the run lasts.
        Plain WaitsForLibrary { spec: String };
        /// A spec matched nothing until the end; `is_unread` if libraries were closed before tiptoe read them.
        Warning NothingMatched { spec: String, is_unread: bool } by is_unread;
        /// A library was probed after its constructors had run.
        Warning ProbedLate { library: String, after_ms: u64 };
        /// How often libraries ran before their probes were set.
        Warning RanUnprobed { times: u64 };
        /// Libraries that were just loaded could not be probed.
        Warning NotProbed { why: String };
        /// Another tracer probed the same functions.
        Warning OtherTracer { events: Vec<String> };
        /// Probes of another tracer were removed from sites of tiptoe's.
        Warning OtherTracerLeft { pid: u32, times: u64 };
        /// A trap was hit too often.
        Warning TrapSwitchedOff { event: String, hits: u64 };
        /// The function of `--under` was never called.
        Warning NeverCalled { function: String };
        /// The function of `--under` was called.
        Plain Called { function: String, calls: u64 };
        /// Calls of the function of `--under` could not be followed.
        Warning CallsNotFollowed { function: String, calls: u64 };
        /// Counted calls cost more than the budget, which limits only what is timed or recorded. A disabled trap is among
        /// their functions if `has_least`.
        Plain AboveBudget { budget_millionths: u64, has_least: bool };
    }

    /// A note on what the kernel counts instead of the agent.
    Kernel(KernelNote) {
        /// The agent does not enter; `pid` is absent for a command.
        Plain Traces { pid: Option<u32>, why: String };
        /// The agent left these events to the kernel.
        Plain Counts { events: Vec<String>, why: String };
        /// The kernel refuses all probes.
        Plain TakesNoProbe { why: String };
        /// The kernel counts only in the threads that ran when tracing began.
        Warning CountsInThreads { threads: u64 };
        /// Threads may be missing, because some kept starting while events were opened.
        Warning ThreadsMissing;
        /// The kernel continued to count after an exec.
        Plain CountedOn { process: Process };
        /// The kernel only counts calls that the request times.
        Warning Untimed { events: Vec<String> };
        /// The kernel cannot split its counts by the request's `--by`.
        Warning Unsplit;
        /// The kernel counts in windows, to keep the budget.
        Warning InWindows { event: String };
        /// The time of BPF programs at switches of other processes.
        Plain OthersCost { ns: u64 };
    }

    /// A note on scopes.
    Scope(ScopeNote) {
        /// Only the time in scopes is known, not their CPU time and events.
        Warning Uncharged { why: String };
        /// The process entered no scopes.
        Plain NeverEntered { process: Process };
        /// No agent saw the scopes of the process.
        Warning Unseen { process: Process };
    }

    /// A note on waits for locks.
    Lock(LockNote) {
        /// The kernel's tracepoints show the waits of one place, because the agent cannot.
        Plain PlaceInKernel { place: String, why: String };
        /// The kernel's tracepoints show all waits of a process; `why` is absent if the user chose that, `call_ns` if no
        /// call was seen.
        Plain InKernel { process: Process, why: Option<String>, call_ns: Option<u64> };
        /// Waits of Go's runtime are not those of goroutines.
        Warning Go;
        /// The kernel hides its addresses.
        Warning CallsitesHidden;
        /// Waits without a call site.
        Plain StacksLost { waits: u64 };
    }

    /// A note on counts of events.
    Stat(StatNote) {
        /// BPF is refused: each cgroup has events of its own.
        Warning CgroupsByEvents { why: String };
        /// BPF and cgroup events are refused: counts are from cgroups' files.
        Warning CgroupsByFiles { why: String };
        /// No cgroup ever matched these patterns.
        Warning UnmatchedPatterns { patterns: Vec<String> };
        /// Removed cgroups are not listed any more.
        Plain Forgotten { cgroups: u64 };
        /// What was missed at switches between cgroups, and how often.
        Warning Amiss { what: CgroupFault, count: u64 } by what;
        /// The cost of a hit cannot be measured without this tracepoint.
        Warning HitCostUnknown { tracepoint: String };
        /// The cost of a switch could not be measured.
        Warning SwitchCostUnknown;
    }

    /// A note on watched variables.
    Watch(WatchNote) {
        /// An exec ended the watch.
        Warning Exec { process: Process, after_ns: u64 };
        /// The variable's pointers were set while the watch lasted.
        Warning PointersSet { variable: String, after_ns: u64 };
        /// The variable's pointers led to another address for the first time.
        Plain Moved { variable: String, from: u64, to: u64, after_ns: u64 };
        /// The variable's pointers lead to no memory; the watch stays at the address.
        Plain PointersLost { variable: String, address: u64, after_ns: u64 };
        /// The variable's pointers never led to memory.
        Warning NeverFound { variable: String };
        /// The variable's pointers led to the address of another watched variable, which alone counts there.
        Warning SameAddress { variable: String, other: String };
        /// How often the variable moved.
        Warning MovedTimes { variable: String, times: u64 };
        /// The variable does not exist any more.
        Warning Ended { variable: String, cause: VariableEnd, after_ns: u64 } by cause;
        /// Other threads accessed a thread's variable after its thread was last seen.
        Warning StackReused { variable: String, seen_ns: u64 };
        /// An allocator's function accessed the variable.
        Warning Freed { variable: String, function: String, after_ns: u64 };
        /// Other processes may share the variable's memory.
        Warning Shared { variable: String };
        /// The watch moved from all CPUs to threads, because of other processes.
        Warning MovedToThreads;
        /// The watch rested in these windows, because of other processes; `why` it could not move to threads.
        Warning RestedForOthers { windows: u64, why: Option<String> };
    }

    /// A remark beside an event.
    Event(EventNote) {
        /// Several functions have the name, and count together.
        Plain SameName { functions: u64 };
        /// The function that an IFUNC's resolver chose.
        Plain Selected { function: String };
        /// Inlined copies of the function are not counted; `within` has the first functions that contain such a copy.
        Warning Inlined { places: u64, within: Vec<String> };
        /// Threads had no room for all values.
        Warning ValuesWithoutRoom;
        /// Each hit is a trap.
        Plain Trap;
    }
}

/// What a program did that ended its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EndCause {
    /// It ran another program.
    Exec,
    /// It put itself under seccomp.
    Seccomp,
    /// It gave up rights or a namespace.
    Confined,
    /// It has its system calls dispatched to a signal handler.
    Dispatch,
    /// It gave a thread storage that is not its C library's.
    Storage,
}

/// What was missed while cgroups were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CgroupFault {
    /// Switches from unknown tasks.
    UnknownTasks,
    /// Switches that the kernel did not report, while events were read.
    UnreportedSwitches,
    /// Switches of tasks that the kernel did not report.
    UnreportedTasks,
    /// Reported switches that the system did not make.
    SurplusSwitches,
    /// Ends of tasks that the kernel did not report.
    UnreportedEnds,
    /// Switches at which the kernel ran no program.
    MissedSwitches,
    /// Switches from tasks that had been moved while they ran.
    MovedTasks,
    /// Switches to cgroups without room.
    NoRoomForCgroup,
    /// Events that could not be read on a CPU.
    UnreadEvents,
    /// Reports of changes without room.
    NoRoomForChange,
}

/// Why a variable does not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum VariableEnd {
    /// Its thread ended.
    Thread,
    /// Its memory was unmapped.
    Unmapped,
}
