//! The hints: what the user can do about an error.

use tiptoe_attach::AttachError;
use tiptoe_kernel::scopes::MOST_EVENTS;
use tiptoe_symbol::variable::VariableError;

use super::{AgentOption, Error};
use crate::words::{few, few_processes};

const NOT_BEGUN: &str =
    "before a command begins, its libraries are not loaded: `-p PID` watches a running program";

/// What the kernel can observe instead if the agent (tiptoe's library) cannot enter a target.
#[derive(Clone, Copy, Debug)]
pub enum AgentSubstitute {
    Functions,
    Locks,
    Variables,
}

/// What was found in place of a function. Specs are quoted for a shell.
#[derive(Debug)]
pub enum InsteadOfFunction {
    /// A file of this name, and the spec of all its functions.
    File { name: String, all: String },
    /// Functions of other files.
    Elsewhere(Vec<String>),
    /// A function whose calls are all inlined, and the functions that contain them.
    Inlined { name: String, within: Vec<String> },
    /// A file that was not read whole.
    CutFile,
    /// A file without the names of some functions.
    Stripped {
        nameless: usize,
        functions: usize,
        /// The commands that install the names.
        remedy: String,
    },
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Kernel(error) => return error.hint(),
            Self::System(error) => return error.hint(),
            Self::Attach(error) => return error.hint(),
            Self::AttachByThread(error) => match (error, error.hint()?) {
                (AttachError::IsThread { .. }, hint) => format!("{hint} --by thread"),
                (_, hint) => hint,
            },
            Self::Under(error) | Self::WithoutAgent { error, .. } => return error.hint(),
            Self::InLauncher { error, program } => {
                let hint = format!("if it starts {program}, `--exec {program}` counts there");
                match error.hint() {
                    Some(other) => format!("{hint}; {other}"),
                    None => hint,
                }
            }
            Self::IsThread { pid, .. } => format!("-p {pid} traces it with all its threads"),
            Self::NoBinary { mapped, is_new, .. } => {
                let hint = format!("it has: {}", mapped.join(", "));
                match is_new {
                    true => format!("{hint}; {NOT_BEGUN}"),
                    false => hint,
                }
            }
            Self::NoFunction { path, instead, .. } => {
                let path = path.display();
                match &**instead.as_ref()? {
                    InsteadOfFunction::File { name, all } => {
                        format!("`{name}:FUNCTION`, or {all} for all of its functions")
                    }
                    InsteadOfFunction::Elsewhere(specs) => format!("there is {}", specs.join(", ")),
                    InsteadOfFunction::Inlined { name, within } => {
                        let what = format!("the compiler inlined all calls of `{name}`");
                        match within[..] {
                            [] => what,
                            _ => format!("{what}, into {}", within.join(", ")),
                        }
                    }
                    InsteadOfFunction::CutFile => format!(
                        "{path} or its debug file is too large to be read whole: functions may be missing"
                    ),
                    InsteadOfFunction::Stripped {
                        nameless,
                        functions,
                        remedy,
                    } => format!(
                        "{path} is stripped: no names for {nameless} of its {functions} functions; {remedy}"
                    ),
                }
            }
            Self::AgentOnly(option) => {
                let option = match option {
                    AgentOption::Record => "--record",
                    AgentOption::Filter => "--filter",
                    AgentOption::Under => "--under",
                    AgentOption::By => "--by",
                };
                format!("leave out `{option}`, or use `--via agent`")
            }
            Self::ManyScopeEvents(_) => format!("{MOST_EVENTS} at most"),
            Self::ManyProcesses(pids) => format!("choose one with -p PID: {}", few_processes(pids)),
            Self::Unmapped { pid: Some(pid), .. } => format!("/proc/{pid}/maps has what is mapped"),
            Self::NotOneThread { threads, .. } => format!("choose one with --thread TID: {}", few(threads)),
            Self::ValuesOfCode { option, .. } => {
                format!("leave out {option}: `:x` counts each execution")
            }
            Self::NoSlot {
                debuggers,
                perf_events,
                ..
            } => match (&debuggers[..], &perf_events[..]) {
                ([], []) => {
                    "watch fewer variables, or end other programs with breakpoints (in other containers, too)".to_owned()
                }
                ([], events) => format!(
                    "no debugger was found; one of these perf events may be a breakpoint, and most are not: {}",
                    events.join("; ")
                ),
                (debuggers, _) => format!("these debuggers may have them: {}", debuggers.join("; ")),
            },
            Self::NoSuchCgroup { near, .. } if !near.is_empty() => {
                format!("similar names: {}", near.join(", "))
            }
            _ => self.fixed_hint()?.to_owned(),
        })
    }

    fn fixed_hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::IsTiptoe(_) => "-p takes the process to trace, `-- CMD` starts one",
            Self::IsKernelThread { .. } => "tiptoe traces functions of programs",
            Self::AgentKeptOut { substitute, .. } => match substitute {
                AgentSubstitute::Functions => "`--via kernel` counts the same functions",
                AgentSubstitute::Locks => {
                    "`--via kernel` watches its futex calls, and makes each more expensive"
                }
                AgentSubstitute::Variables => {
                    "`--via kernel` and `--via kernel-task` watch from outside, as root"
                }
            },
            Self::AgentNotLoaded { .. } => "`--via kernel` needs no agent",
            Self::ReturnProbes => "use `--via agent`, or count entries (`uprobe:`) alone",
            Self::LocksOf32Bit(_) => "`--kernel` watches the kernel's own locks",
            Self::HoldWithoutAgent => "leave out `--hold`",
            Self::BadHold { .. } => {
                "--hold takes a variable (`cache_lock`, `libfoo.so:lock`, `pool+0x28`), or a place, as `tiptoe \
                 lock` prints it (`memcached:0x3fde0`)"
            }
            Self::UnreadableWaits { .. } => {
                "run as root, or as the process's user if /proc/sys/kernel/yama/ptrace_scope allows it"
            }
            Self::NoScopes { .. } => "link it with the crate tiptoe-scope, or include tiptoe.h",
            Self::CpuCounter(_) => {
                "use events that the kernel counts (page-faults, cs, migrations), or tracepoints"
            }
            Self::UnreadableMemory { .. } => "run as root, or as the process's user",
            Self::BadVariable { .. } => {
                "a variable is [BINARY:]NAME[:LEN][:w|rw|x], such as stats.hits, table[3]->next or 0x601040:4:rw"
            }
            Self::Variable(VariableError::WhichThread { .. }) => "--thread TID or NAME",
            Self::Unmapped { .. } => NOT_BEGUN,
            Self::SameAddress { .. } => "watch only one of them, with the longer length or with rw",
            Self::ManyVariables | Self::ManyConditions => "leave some out",
            Self::ManyPinned(_) => "leave /pinned/ out, and they take turns",
            Self::ShortTurns => "50ms to 200ms are usual",
            Self::SharedByThreads(_) => "leave out --thread; --by thread splits the rows by thread",
            Self::NoThreadPointer { .. } => {
                "a debugger may trace it, or it has not begun: `-p PID` watches a running program"
            }
            Self::BadCondition { .. } => {
                "such as 'new == 0', 'new < old' or 'old != 0 && new & 0x8000'"
            }
            Self::WhenFloat(_) => "leave --when out: the report shows the values",
            Self::BreakpointsDenied => {
                "`sysctl kernel.perf_event_paranoid=2` as root allows it, or run tiptoe as root"
            }
            Self::BreakpointFiles(_) => {
                "watch fewer variables, or raise its limit (`prlimit --nofile`)"
            }
            Self::ThreadsTooFast => {
                "run tiptoe as root with `--via kernel`, which follows new threads"
            }
            Self::BreakpointsRefused => "breakpoints that raise signals need Linux 5.13 or later",
            Self::NoCgroups { .. } => "`mount -t cgroup2 none /mnt`, on a kernel that has them",
            Self::NamelessCgroup => "'/' is the root, '*' matches all",
            Self::NoSuchCgroup { .. } => {
                "patterns such as 'system.slice/*' also count cgroups that are created later"
            }
            Self::NothingCounts(_) => {
                "a virtual machine often has no counters; task-clock and page-faults need none"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_innocent_perf_event_was_named_as_the_holder() {
        let [gdb, perf] = [
            "gdb (pid 7), which traces prog (pid 8)",
            "perf (pid 9): 2 x perf event",
        ]
        .map(|one| vec![one.to_owned()]);
        let hint = |debuggers: &[String], perf_events: &[String]| {
            let error = Error::NoSlot {
                error: tiptoe_kernel::Error::NoBreakpoints,
                debuggers: debuggers.to_vec(),
                perf_events: perf_events.to_vec(),
            };
            error.hint().unwrap()
        };
        assert_eq!(
            hint(&gdb, &perf),
            "these debuggers may have them: gdb (pid 7), which traces prog (pid 8)"
        );
        let alone = hint(&[], &perf);
        assert!(alone.contains("and most are not: perf (pid 9)"), "{alone}");
        assert!(hint(&[], &[]).starts_with("watch fewer variables"));
    }
}
