//! The errors of injecting the agent (tiptoe's library) and of stopping threads, with all messages.
#![expect(missing_docs, reason = "the message of a variant says what it means")]

use std::io;

/// Why an injection failed. The target is unchanged, unless a variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    #[error("no process {pid}")]
    NoSuchProcess { pid: u32 },
    #[error("not permitted to trace process {pid}; {hint}")]
    NotPermitted { pid: u32, hint: &'static str },
    #[error("process {pid} is traced by process {by}")]
    AlreadyTraced { pid: u32, by: u32 },
    #[error("no thread of process {pid} could be borrowed in time: {why}")]
    Busy { pid: u32, why: BusyReason },
    #[error("process {pid} runs a static program")]
    Static { pid: u32 },
    #[error("process {pid} is not a 64-bit x86 program")]
    Foreign { pid: u32 },
    /// musl cannot load the agent at run time, because the agent has thread-local variables.
    #[error("process {pid} runs on musl")]
    Musl { pid: u32 },
    /// The seccomp filter may kill the process for a system call of the agent.
    #[error("process {pid} is under seccomp")]
    Seccomp { pid: u32 },
    #[error("process {pid} has no libc.so.6 with `dlopen`")]
    NoLibc { pid: u32 },
    #[error("process {pid} has no room for the stub at the end of a text segment")]
    NoCave { pid: u32 },
    #[error("process {pid} ended, or ran another program, while the agent was brought in")]
    Died { pid: u32 },
    #[error("the loader of process {pid} refused the agent")]
    Refused { pid: u32 },
    #[error("process {pid} sees no /proc, through which its loader would take the agent")]
    NoProc { pid: u32 },
    #[error("the injection into process {pid} was abandoned: {why}")]
    Abandoned { pid: u32, why: Delay },
    #[error("in process {pid}, memfd_create or mmap failed: {error}")]
    InTarget { pid: u32, error: io::Error },
    /// The process offered descriptors that tiptoe's injected code (the stub) cannot have made.
    #[error("process {pid} did not offer fresh memory: {what}")]
    Hostile { pid: u32, what: BadDescriptor },
    #[error("{call} for process {pid} failed: {error}")]
    Os {
        pid: u32,
        call: InjectCall,
        error: io::Error,
    },
}

/// Why no thread could be borrowed (made to load the agent). If several threads failed, this is the reason of the
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BusyReason {
    #[error("no thread was seen")]
    NoThread,
    #[error("thread {tid} {why}")]
    Unfit { tid: u32, why: UnfitThread },
    #[error("one of its threads holds the loader's lock")]
    LoaderLocked,
    #[error("its loader is not done with the agent of another tiptoe")]
    LoaderBusy,
    #[error("{} holds the lock of /proc/PID/mem, as another tiptoe does before its agent enters", match .0 {
        Some(holder) => format!("process {holder}"),
        None => "a process".to_owned(),
    })]
    MemoryLocked(Option<u32>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfitThread {
    #[error("does not stop")]
    Late,
    #[error("is in state {0}")]
    State(char),
    #[error("is in a call that should not be interrupted")]
    Uninterruptible,
    #[error("would wait for the loader's lock")]
    LoaderLocked,
    #[error("is inside the allocator, the loader or fork")]
    Inside,
    #[error("runs a signal handler over unknown frames")]
    UnknownFrames,
    #[error("has a stack through too many files")]
    TooManyFiles,
    #[error("runs 32-bit code")]
    Code32,
    #[error("is no thread of the program's libc")]
    UnknownToLibc,
    #[error("is inside a restartable sequence")]
    InRseq,
    #[error("entered the kernel in an unknown way")]
    UnknownEntry,
    #[error("waits with a time-out")]
    Timed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Delay {
    #[error("the borrowed thread did not arrive (may it map memory?)")]
    Arrival,
    #[error("tiptoe was too slow")]
    Tiptoe,
    #[error("the deadline passed")]
    Deadline,
    #[error("the borrowed thread is not back yet")]
    Departure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDescriptor {
    #[error("a descriptor is no sealable memory")]
    Unsealable,
    #[error("a descriptor is not of ordinary memory")]
    HugePages,
    #[error("a descriptor is not empty")]
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InjectCall {
    #[error("open of /proc/PID/exe")]
    OpenProgram,
    #[error("open of /proc/PID/mem")]
    OpenMemory,
    #[error("lock of /proc/PID/mem")]
    LockMemory,
    #[error("read of /proc/PID/maps")]
    ReadMappings,
    #[error("read of /proc/PID/task")]
    ReadThreads,
    #[error("read of /proc/PID/task/TID/status")]
    ReadStatus,
    #[error("ptrace")]
    Ptrace,
    #[error("pidfd_getfd")]
    TakeDescriptor,
    #[error("filling a memfd")]
    FillMemfd,
    #[error("preparing the segments")]
    PrepareSegments,
    #[error("sealing a memfd")]
    SealMemfd,
}

impl InjectCall {
    fn is_of_proc(self) -> bool {
        use InjectCall::{FillMemfd, PrepareSegments, Ptrace, SealMemfd, TakeDescriptor};
        !matches!(
            self,
            Ptrace | TakeDescriptor | FillMemfd | PrepareSegments | SealMemfd
        )
    }
}

impl InjectError {
    pub(crate) fn os(pid: u32, call: InjectCall, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::NoSuchProcess { pid },
            Some(libc::ENOENT) if call.is_of_proc() => Self::NoSuchProcess { pid },
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { pid, hint: hint() },
            _ => Self::Os { pid, call, error },
        }
    }
}

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
