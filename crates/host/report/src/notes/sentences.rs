//! The sentences of all kinds of [`Note`]. They must be only here and in submodules, so that each note has one
//! wording.
//!
//! Names come from the traced program or its user, so [`sentence`] must escape them.

use tiptoe_event::ShellWord;
use tiptoe_session::{
    EndCause, EventNote, FunctionNote, KernelNote, LockNote, Note, Process, ProcessNote, ScopeNote,
};

use super::signals::signal_name;
use crate::number::counted;
use crate::{cost, printable};

mod stat_notes;
mod watch_notes;

const FEW: usize = 8;
/// The most names of events or functions in a note on the kernel's counts or on inlined copies.
const FEW_EVENTS: usize = 3;
const HOW: &str = "link it with the crate tiptoe-scope, or include tiptoe.h";

/// Returns the note as a sentence, or as a few words beside an event.
pub(crate) fn sentence(note: &Note) -> String {
    // Escaping the whole sentence is correct, because its own words contain no escape sequences.
    printable(&match note {
        Note::Process(note) => of_process(note),
        Note::Function(note) => of_function(note),
        Note::Kernel(note) => of_kernel(note),
        Note::Scope(note) => of_scope(note),
        Note::Lock(note) => of_lock(note),
        Note::Stat(note) => stat_notes::sentence(note),
        Note::Watch(note) => watch_notes::sentence(note),
        Note::Event(note) => of_event(note),
    })
}

fn of_process(note: &ProcessNote) -> String {
    match note {
        ProcessNote::SigintIgnored => {
            "Ctrl-C (SIGINT) was ignored when tiptoe was started, and stays ignored: SIGTERM ends the trace"
                .to_owned()
        }
        ProcessNote::WaitsForCommand => {
            "the trace has ended; the report follows when the command ends".to_owned()
        }
        ProcessNote::CommandContinues { signal } => {
            format!("the command continues: signal {signal} did not end it")
        }
        ProcessNote::StartedLate => {
            "the command ran already when counting began: earlier calls are not counted".to_owned()
        }
        ProcessNote::BrokenOff {
            signal,
            attached,
            missing,
        } => {
            let by = signal_name(*signal).map_or_else(String::new, |name| format!(" by {name}"));
            let missing = match (attached, &missing[..]) {
                (0, _) => ": nothing was counted".to_owned(),
                (_, []) => String::new(),
                (_, missing) => {
                    let missing: Vec<String> = missing.iter().map(named).collect();
                    format!(": not counted: {}", few(&missing, FEW))
                }
            };
            format!("attaching was broken off{by}{missing}")
        }
        ProcessNote::EndedInAttach { process } => format!(
            "{} ended before tiptoe had attached to it: it is not counted",
            whose(process)
        ),
        ProcessNote::AttachedLater { process, after_ns } => format!(
            "{} was attached {} after the first process: its waits before that are not counted",
            whose(process),
            seconds(*after_ns, 1)
        ),
        ProcessNote::FunctionsMissing {
            process,
            missing,
            functions,
        } => format!(
            "attaching was broken off: {missing} of {functions} functions of {} are not counted",
            whose(process)
        ),
        ProcessNote::NotDetached { process, why } => format!(
            "the agent is still in {}: {why}; it removes the probes when the process continues",
            whose(process)
        ),
        ProcessNote::TraceEnded {
            process,
            cause,
            after_ns,
        } => {
            let (what, then) = end(*cause);
            format!("{} {what} after {}: {then}", whose(process), seconds(*after_ns, 1))
        }
        ProcessNote::Ended {
            process,
            signal,
            after_ns,
        } => {
            let name = signal.and_then(signal_name).map(|name| format!(" ({name})"));
            let what = signal.map_or_else(
                || "ended".to_owned(),
                |signal| format!("was killed by signal {signal}{}", name.unwrap_or_default()),
            );
            format!("{} {what} after {}", whose(process), seconds(*after_ns, 1))
        }
        ProcessNote::EndedInDelay => {
            "the trace ended before its delay was over: nothing was counted".to_owned()
        }
        ProcessNote::UntracedChildren { children, comm } => {
            let who = match children {
                1 => "1 child runs the same program and is not traced".to_owned(),
                some => format!("{some} children run the same program and are not traced"),
            };
            let comm = ShellWord(comm.as_bytes());
            format!("{who}: `--comm {comm}` traces all running processes of that name")
        }
    }
}

fn end(cause: EndCause) -> (&'static str, &'static str) {
    let what = match cause {
        EndCause::Exec => {
            return (
                "ran another program",
                "the trace of the old program ended (`-p` traces the new one; `--exec NAME -- CMD` traces the program NAME \
                 that CMD starts)",
            );
        }
        EndCause::Seccomp => "put itself under seccomp",
        EndCause::Confined => "gave up rights or a namespace",
        EndCause::Dispatch => "sent its system calls to a signal handler (prctl)",
        EndCause::Storage => "replaced a thread's thread-local storage",
    };
    (
        what,
        "the agent had to leave, so the trace ended (`--via kernel` can trace it)",
    )
}

fn of_function(note: &FunctionNote) -> String {
    match note {
        FunctionNote::FoundInLibrary { function, spec } => format!(
            "the program has no function `{function}`: `{}` is probed",
            ShellWord(spec.as_bytes())
        ),
        FunctionNote::NoSymbols {
            path,
            nameless,
            functions,
            remedy,
        } => format!(
            "{path} is stripped: no names for {nameless} of its {functions} functions; {remedy}"
        ),
        FunctionNote::FileTooLarge { path } => format!(
            "{path} or its debug file is too large to be read whole: functions may be missing"
        ),
        FunctionNote::WaitsForLibrary { spec } => {
            format!("`{spec}` matches nothing that is loaded now, and waits for libraries")
        }
        FunctionNote::NothingMatched { spec, is_unread } => {
            let what = match is_unread {
                true => "could be read in time",
                false => "was loaded",
            };
            format!("`{spec}` matched nothing that {what}")
        }
        FunctionNote::ProbedLate { library, after_ms } => format!(
            "{library}: its functions were probed only from {after_ms} ms after it was loaded"
        ),
        FunctionNote::RanUnprobed { times } => format!(
            "{} a library ran before its probes were set: its calls until then were not counted",
            counted(*times, "time")
        ),
        FunctionNote::NotProbed { why } => {
            format!("functions of libraries that were loaded just now may be missing: {why}")
        }
        FunctionNote::OtherTracer { events } => {
            let its = if events.len() == 1 { "its" } else { "their" };
            format!(
                "another tracer probed {} too: during that time {its} hits were counted through a trap, or not at all",
                few(events, FEW)
            )
        }
        FunctionNote::OtherTracerLeft { pid, times } => format!(
            "probes of another tracer were removed {} from code that tiptoe probes in process {pid}: until then hits \
             there were counted through a trap, or not at all",
            counted(*times, "time")
        ),
        FunctionNote::CodeMoved { events } => format!(
            "the program moved the code of {}, or mapped it once more: its calls at the other addresses are not counted",
            few(events, FEW)
        ),
        FunctionNote::TrapSwitchedOff { event, hits } => format!(
            "{event} was switched off after {}: it had more than 10,000 a second, each through a trap of about 3 us \
             (`--budget off` keeps it on)",
            counted(*hits, "hit")
        ),
        FunctionNote::NeverCalled { function } => {
            format!("{function} was not called: calls that began before the trace are not seen")
        }
        FunctionNote::Called { function, calls } => {
            format!("{function} was called {}", counted(*calls, "time"))
        }
        FunctionNote::AboveBudget {
            budget_millionths,
            has_least,
        } => cost::above_budget_sentence(*budget_millionths, *has_least),
        FunctionNote::CallsNotFollowed { function, calls } => format!(
            "hits below {} of {function} are not counted: these calls were nested too deeply, made from too many \
             places or from generated code, or ran in too many threads",
            counted(*calls, "call")
        ),
    }
}

fn of_kernel(note: &KernelNote) -> String {
    match note {
        KernelNote::Traces { pid, why } => {
            let subject = pid.map_or_else(String::new, |pid| format!("process {pid} is "));
            format!("{subject}traced by the kernel: {why}")
        }
        KernelNote::Counts { events, why } => {
            format!("the kernel counts {}: {why}", few(events, FEW_EVENTS))
        }
        KernelNote::TakesNoProbe { why } => format!("the kernel takes no probe: {why}"),
        KernelNote::CountsInThreads { threads } => format!(
            "the kernel counts in the {} that ran when tracing began, not in later ones",
            counted(*threads, "thread")
        ),
        KernelNote::ThreadsMissing => {
            "threads kept starting while the events were opened: some threads may be missing"
                .to_owned()
        }
        KernelNote::CountedOn { process } => format!(
            "{} ran another program: the kernel continued to count in the files that both programs map (`--via agent` \
             ends the trace)",
            whose(process)
        ),
        KernelNote::Untimed { events } => format!(
            "no times of {}: the kernel's uprobes count calls and do not time them",
            few(events, FEW_EVENTS)
        ),
        KernelNote::Unsplit => {
            "the kernel's uprobes count for the whole process, so `--by` cannot split the counts"
                .to_owned()
        }
        KernelNote::InWindows { event } => format!(
            "the kernel counts {event} in windows: all its hits would cost more than the budget (`--budget off` \
             counts all)"
        ),
        KernelNote::OthersCost { ns } => format!(
            "for other processes the BPF programs at task switches took {:.2} ms",
            *ns as f64 / 1e6
        ),
    }
}

fn of_scope(note: &ScopeNote) -> String {
    match note {
        ScopeNote::Uncharged { why } => {
            format!("only the wall time of scopes is known, not their CPU time and events: {why}")
        }
        ScopeNote::NeverEntered { process } => {
            format!(
                "{} entered no scopes; if it has none, {HOW}",
                whose(process)
            )
        }
        ScopeNote::Unseen { process } => format!(
            "the scopes of {} are unknown: only the agent can see them",
            whose(process)
        ),
    }
}

fn of_lock(note: &LockNote) -> String {
    match note {
        LockNote::PlaceInKernel { place, why } => format!(
            "futex calls at {place} are seen through the kernel's futex tracepoints: {why}"
        ),
        LockNote::InKernel {
            process,
            why,
            call_ns,
        } => {
            let why = match why {
                Some(why) => format!("because the agent cannot enter ({why})"),
                None => "as `--via kernel` requests".to_owned(),
            };
            let each = call_ns.map_or_else(String::new, |ns| {
                format!(": each futex call costs about {ns} ns, plus entry and exit of a BPF program")
            });
            format!("{} is seen through the kernel's futex tracepoints, {why}{each}", whose(process))
        }
        LockNote::NoBudget => {
            "`--budget` does not limit the kernel's futex tracepoints: each call that they see is timed"
                .to_owned()
        }
        LockNote::Go => {
            "waits in Go's runtime are waits of its threads (Ms), for a goroutine to run or for a lock of the \
             runtime; waits of goroutines for a sync.Mutex are not seen: for those use \
             runtime.SetMutexProfileFraction and `go tool pprof`"
                .to_owned()
        }
        LockNote::CallsitesHidden => {
            "call sites have no names: the kernel hides its addresses (cap_syslog is missing, or \
             kernel.kptr_restrict is 2)"
                .to_owned()
        }
        LockNote::StacksLost { waits } => format!(
            "{} without a call site: the stack could not be kept",
            counted(*waits, "wait")
        ),
    }
}

fn of_event(note: &EventNote) -> String {
    match note {
        EventNote::SameName { functions } => format!("{functions} functions of this name"),
        EventNote::Selected { function } => format!("selected {function}"),
        EventNote::Inlined { places, within } => inlined(*places, within),
        EventNote::InlinedUnknown => {
            "inlined places, if any, are not counted: too much debug information to find them"
                .to_owned()
        }
        EventNote::ValuesWithoutRoom => "more values than threads have room for".to_owned(),
        EventNote::Trap => "trap: no jump fits there".to_owned(),
    }
}

fn inlined(places: u64, within: &[String]) -> String {
    let verb = if places == 1 { "is" } else { "are" };
    let places = counted(places, "inlined place");
    let within = match within {
        [] => String::new(),
        within => format!(": in {}", few(within, FEW_EVENTS)),
    };
    format!("{places} {verb} not counted{within}")
}

fn whose(process: &Process) -> String {
    format!("process {} ({})", process.pid, process.comm)
}

fn named(process: &Process) -> String {
    let words = format!("{} {}", process.pid, process.comm);
    words.trim_end().to_owned()
}

fn few(all: &[String], most: usize) -> String {
    let first = all[..all.len().min(most)].join(", ");
    match all.len().saturating_sub(most) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn seconds(ns: u64, decimals: usize) -> String {
    format!("{:.decimals$} s", ns as f64 / 1e9)
}
