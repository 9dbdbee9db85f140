//! Why an agent could not be brought in, or a thread not be helped.

use std::io;

/// What stood in the way. The target is as it was, except where a variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// There is no such process, or it has ended already.
    #[error("no process {pid}")]
    NoSuchProcess {
        /// The process that was asked for.
        pid: u32,
    },
    /// The kernel does not let this user trace the process.
    #[error("not permitted to trace process {pid}; {hint}")]
    NotPermitted {
        /// The process that was asked for.
        pid: u32,
        /// What would permit it.
        hint: &'static str,
    },
    /// A debugger, or another tracer, holds a thread of the process.
    #[error("process {pid} is traced by process {by}")]
    AlreadyTraced {
        /// The process that was asked for.
        pid: u32,
        /// Its tracer.
        by: u32,
    },
    /// No thread could be borrowed in the time given.
    #[error("no thread of process {pid} could be borrowed in time: {why}")]
    Busy {
        /// The process that was asked for.
        pid: u32,
        /// Why the last candidate was let go.
        why: String,
    },
    /// The program has no dynamic loader.
    #[error("process {pid} runs a static program")]
    Static {
        /// The process that was asked for.
        pid: u32,
    },
    /// The program is not 64-bit x86.
    #[error("process {pid} is not a 64-bit x86 program")]
    Foreign {
        /// The process that was asked for.
        pid: u32,
    },
    /// The program's libc is musl, which loads no library with thread-locals late.
    #[error("process {pid} runs on musl")]
    Musl {
        /// The process that was asked for.
        pid: u32,
    },
    /// A system call filter may kill the program for a call that it does not expect.
    #[error("process {pid} is under seccomp")]
    Seccomp {
        /// The process that was asked for.
        pid: u32,
    },
    /// There is no libc with `dlopen` in the process.
    #[error("process {pid} has no libc.so.6 with `dlopen`")]
    NoLibc {
        /// The process that was asked for.
        pid: u32,
    },
    /// No executable page of the process has enough unused bytes at its end.
    #[error("process {pid} has no room for the stub at the end of a text segment")]
    NoCave {
        /// The process that was asked for.
        pid: u32,
    },
    /// The process ended, or called exec, while the agent was brought in.
    #[error("process {pid} ended, or ran another program, while the agent was brought in")]
    Died {
        /// The process that was asked for.
        pid: u32,
    },
    /// The program's loader did not take the agent.
    #[error("the loader of process {pid} refused the agent")]
    Refused {
        /// The process that was asked for.
        pid: u32,
    },
    /// The program's root has no /proc, through which its loader would open the agent.
    #[error("process {pid} sees no /proc, through which its loader would take the agent")]
    NoProc {
        /// The process that was asked for.
        pid: u32,
    },
    /// The borrowed thread gave up, because tiptoe was too slow, or the deadline came.
    #[error("process {pid} was let go: {why}")]
    Abandoned {
        /// The process that was asked for.
        pid: u32,
        /// Who gave up.
        why: &'static str,
    },
    /// A system call of the borrowed thread failed.
    #[error("in process {pid}, {call} failed: {error}")]
    InTarget {
        /// The process that was asked for.
        pid: u32,
        /// The call.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
    /// What the process offered is not what the stub makes.
    #[error("process {pid} offered something else than fresh memory: {what}")]
    Hostile {
        /// The process that was asked for.
        pid: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A system call of ours failed.
    #[error("{call} for process {pid} failed: {error}")]
    Os {
        /// The process that was asked for.
        pid: u32,
        /// The call.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
}

impl InjectError {
    /// A failed call of ours; a process that is gone is said to be so.
    pub(super) fn os(pid: u32, call: &'static str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::NoSuchProcess { pid },
            Some(libc::ENOENT) if call.contains("/proc") => Self::NoSuchProcess { pid },
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { pid, hint: hint() },
            _ => Self::Os { pid, call, error },
        }
    }
}

/// What would permit tracing: the sysctl if it is that which forbids it, else the capability.
fn hint() -> &'static str {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref().map(str::trim) {
        Ok("3") => "kernel.yama.ptrace_scope is 3: no process may be traced until the next boot",
        Ok("2") => "kernel.yama.ptrace_scope is 2: CAP_SYS_PTRACE is needed",
        Ok("1") => {
            "kernel.yama.ptrace_scope is 1: CAP_SYS_PTRACE is needed, or `sysctl kernel.yama.ptrace_scope=0`"
        }
        _ => {
            "the process is another user's, or privileged: CAP_SYS_PTRACE and CAP_DAC_OVERRIDE are needed"
        }
    }
}
