//! Errors of injecting, and of stopping a thread.

use std::io;

/// Why an injection failed. The target is unchanged, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// The process does not exist, or has ended.
    #[error("no process {pid}")]
    NoSuchProcess {
        /// The requested process.
        pid: u32,
    },
    /// The kernel does not let this user trace the process.
    #[error("not permitted to trace process {pid}; {hint}")]
    NotPermitted {
        /// The requested process.
        pid: u32,
        /// What would permit it.
        hint: &'static str,
    },
    /// A debugger, or another tracer, holds a thread of the process.
    #[error("process {pid} is traced by process {by}")]
    AlreadyTraced {
        /// The requested process.
        pid: u32,
        /// The process's tracer.
        by: u32,
    },
    /// No thread could be borrowed before the deadline.
    #[error("no thread of process {pid} could be borrowed in time: {why}")]
    Busy {
        /// The requested process.
        pid: u32,
        /// Why the last candidate was rejected.
        why: String,
    },
    /// The program is static, so that it has no dynamic loader.
    #[error("process {pid} runs a static program")]
    Static {
        /// The requested process.
        pid: u32,
    },
    /// The program is not 64-bit x86.
    #[error("process {pid} is not a 64-bit x86 program")]
    Foreign {
        /// The requested process.
        pid: u32,
    },
    /// The program's libc is musl, which cannot load a library with thread-local variables at run
    /// time.
    #[error("process {pid} runs on musl")]
    Musl {
        /// The requested process.
        pid: u32,
    },
    /// The process is under seccomp, whose filter may kill it for a call that the filter does not
    /// expect.
    #[error("process {pid} is under seccomp")]
    Seccomp {
        /// The requested process.
        pid: u32,
    },
    /// The process has no libc with `dlopen`.
    #[error("process {pid} has no libc.so.6 with `dlopen`")]
    NoLibc {
        /// The requested process.
        pid: u32,
    },
    /// No executable page of the process has enough unused bytes at its end.
    #[error("process {pid} has no room for the stub at the end of a text segment")]
    NoCave {
        /// The requested process.
        pid: u32,
    },
    /// The process ended, or called exec, while the agent was brought in.
    #[error("process {pid} ended, or ran another program, while the agent was brought in")]
    Died {
        /// The requested process.
        pid: u32,
    },
    /// The program's loader refused the agent.
    #[error("the loader of process {pid} refused the agent")]
    Refused {
        /// The requested process.
        pid: u32,
    },
    /// The program's root has no /proc, through which its loader would open the agent.
    #[error("process {pid} sees no /proc, through which its loader would take the agent")]
    NoProc {
        /// The requested process.
        pid: u32,
    },
    /// The borrowed thread gave up, because tiptoe was too slow or the deadline passed.
    #[error("the injection into process {pid} was abandoned: {why}")]
    Abandoned {
        /// The requested process.
        pid: u32,
        /// What was too slow or did not happen.
        why: &'static str,
    },
    /// A system call of the borrowed thread failed.
    #[error("in process {pid}, {call} failed: {error}")]
    InTarget {
        /// The requested process.
        pid: u32,
        /// The call.
        call: &'static str,
        /// The call's error.
        error: io::Error,
    },
    /// The process offered descriptors that the stub cannot have made.
    #[error("process {pid} did not offer fresh memory: {what}")]
    Hostile {
        /// The requested process.
        pid: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A system call of ours failed.
    #[error("{call} for process {pid} failed: {error}")]
    Os {
        /// The requested process.
        pid: u32,
        /// The call.
        call: &'static str,
        /// The call's error.
        error: io::Error,
    },
}

impl InjectError {
    /// Returns the error for a failed call of ours; `NoSuchProcess` if the process has ended.
    pub(super) fn os(pid: u32, call: &'static str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::NoSuchProcess { pid },
            Some(libc::ENOENT) if call.contains("/proc") => Self::NoSuchProcess { pid },
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { pid, hint: hint() },
            _ => Self::Os { pid, call, error },
        }
    }
}

/// Returns what would permit tracing: another value of the sysctl if the sysctl forbids it, otherwise capabilities.
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
