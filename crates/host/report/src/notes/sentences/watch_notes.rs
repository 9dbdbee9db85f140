//! The sentences of notes on watched variables.

use tiptoe_session::{VariableEnd, WatchNote};

use super::{seconds, whose};
use crate::number::counted;

pub(super) fn sentence(note: &WatchNote) -> String {
    match note {
        WatchNote::Exec { process, after_ns } => format!(
            "{} called exec after {}: the watch ended",
            whose(process), seconds(*after_ns, 1)
        ),
        WatchNote::PointersSet { variable, after_ns } => format!(
            "`{variable}` is watched since {}, when its pointers were set: earlier accesses are missing",
            seconds(*after_ns, 3)
        ),
        WatchNote::Moved {
            variable,
            from,
            to,
            after_ns,
        } => format!(
            "`{variable}` is at {to:#x} since {}, and was at {from:#x}: the watch follows its pointers",
            seconds(*after_ns, 1)
        ),
        WatchNote::PointersLost {
            variable,
            address,
            after_ns,
        } => format!(
            "the pointers of `{variable}` lead to no memory from {} on: the watch stays at {address:#x} until they \
             lead to memory again",
            seconds(*after_ns, 1)
        ),
        WatchNote::NeverFound { variable } => format!(
            "`{variable}` was never watched: its pointers led to no memory during the trace"
        ),
        WatchNote::SameAddress { variable, other } => format!(
            "the pointers of `{variable}` led to the address of `{other}`: accesses there count only for `{other}`"
        ),
        WatchNote::MovedTimes { variable, times } => {
            let times = match times {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            };
            format!(
                "`{variable}` moved {times}, because its pointers changed: accesses before tiptoe saw each change are \
                 missing"
            )
        }
        WatchNote::Ended {
            variable,
            cause,
            after_ns,
        } => {
            let why = match cause {
                VariableEnd::Thread => "its thread ended",
                VariableEnd::Unmapped => "it was unmapped",
            };
            format!("the watch of `{variable}` ended after {}: {why}", seconds(*after_ns, 1))
        }
        WatchNote::StackReused { variable, seen_ns } => format!(
            "`{variable}` was accessed by other threads after {}, when its thread was last seen: the memory may have \
             been reused for a variable of another thread",
            seconds(*seen_ns, 2)
        ),
        WatchNote::Freed {
            variable,
            function,
            after_ns,
        } => format!(
            "`{variable}` was accessed by `{function}` after {}: an allocator took back or handed out memory there, \
             so later accesses may be to another object",
            seconds(*after_ns, 1)
        ),
        WatchNote::Shared { variable } => format!(
            "`{variable}` is in memory that other processes may share: their stores are not seen, and old values are \
             those that this process left"
        ),
        WatchNote::MovedToThreads => {
            "other processes hit the same addresses: the watch moved from all CPUs to the threads of its process; \
             accesses during the move were missed"
                .to_owned()
        }
        WatchNote::RestedForOthers { windows, why } => format!(
            "the watch rested in {windows} windows, because other processes hit the same addresses ({})",
            why.as_deref().unwrap_or("`--via kernel-task` excludes these processes")
        ),
        WatchNote::SourcesUnread { file } => format!(
            "source lines and inlined functions of {file} are missing: its debug information takes too long to read"
        ),
        WatchNote::AgentLeft { times } => format!(
            "hits may be missing: each time that the program changed its namespaces ({}), the breakpoints were closed for a \
             moment",
            counted(*times, "time")
        ),
        WatchNote::NotAccounted { threads } => format!(
            "{} inherited breakpoints that the accounting of debug registers has no room for: their hits are counted",
            counted(*threads, "thread")
        ),
    }
}
