//! Finds out what this machine and this user can do, by trying each operation in a harmless form.
//! Sysctls and capability bits do not suffice, because a container, seccomp or a security module may refuse what the
//! bits allow.

use std::prelude::rust_2024::*;

use std::fmt;
use std::fs;
use std::io;
use std::sync::OnceLock;

use super::cgroup::Cgroups;
use super::limits::{OpenFiles, open_files};
use super::procfs::Process;
use super::tracefs::Tracefs;

mod caps;
mod tries;

pub use caps::{Cap, CapSet, SETCAP, SETCAP_GRANTS};
pub(super) use tries::in_first_user_namespace;
pub use tries::{in_first_pid_namespace, is_linux, pid_namespace};

/// A trial's result.
pub type Check = Result<(), Refusal>;

/// A trial that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The call or file.
    pub call: &'static str,
    /// The kernel's answer.
    pub errno: i32,
}

/// A kind of BPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BpfKind {
    /// At kernel and user probes.
    Kprobe,
    /// At tracepoints.
    Tracepoint,
    /// At raw tracepoints.
    RawTracepoint,
    /// At perf events, such as breakpoints.
    PerfEvent,
}

/// What this machine and this user can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// The release, such as `6.18.1`.
    pub kernel: String,
    /// `kernel.perf_event_paranoid`; `None` without perf events.
    pub perf_event_paranoid: Option<i32>,
    /// `kernel.yama.ptrace_scope`; `None` without Yama.
    pub ptrace_scope: Option<i32>,
    /// tiptoe's effective capabilities.
    pub effective: CapSet,
    /// Whether tiptoe's capabilities apply to every process.
    pub in_first_user_namespace: bool,
    /// Whether tiptoe sees every process.
    pub sees_all_processes: bool,
    /// The limit on open files.
    pub open_files: OpenFiles,
    /// tracefs.
    pub tracefs: Tracefs,
    /// Loading BPF programs.
    pub bpf: [(BpfKind, Check); 4],
    /// Type information, which makes BPF programs portable.
    pub btf: Check,
    /// Control groups.
    pub cgroups: Cgroups,
    /// Hardware counters.
    pub hardware_counters: Check,
    /// Software counters.
    pub software_counters: Check,
    /// Uprobes for a process, counted by BPF (Linux 6.6).
    pub process_uprobes: Check,
    /// Uprobes for a thread, by perf_event_open.
    pub thread_uprobes: Check,
    /// Hardware breakpoints.
    pub breakpoints: Check,
    /// Making every CPU refetch patched code.
    pub membarrier_sync_core: Check,
    /// Restartable sequences.
    pub rseq: Check,
    /// Waiting on several futexes.
    pub futex_waitv: Check,
    /// Reading another process's memory.
    pub process_vm_readv: Check,
    /// Executable memfds, such as that of the agent (tiptoe's code in a target).
    pub executable_memfd: Check,
}

impl Capabilities {
    /// Returns the capabilities, which the first call tries.
    pub fn get() -> &'static Self {
        static TABLE: OnceLock<Capabilities> = OnceLock::new();
        TABLE.get_or_init(Self::probe)
    }

    fn probe() -> Self {
        let own = Process::current().status().unwrap_or_default();
        Self {
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_default(),
            perf_event_paranoid: sysctl("kernel/perf_event_paranoid"),
            ptrace_scope: sysctl("kernel/yama/ptrace_scope"),
            effective: CapSet(own.cap_eff),
            in_first_user_namespace: tries::in_first_user_namespace(),
            sees_all_processes: tries::in_first_pid_namespace(),
            open_files: open_files(),
            tracefs: Tracefs::detect(),
            bpf: tries::bpf(),
            btf: tries::btf(),
            cgroups: Cgroups::detect().unwrap_or_default(),
            hardware_counters: tries::hardware_counters(),
            software_counters: tries::software_counters(),
            process_uprobes: tries::process_uprobes(),
            thread_uprobes: tries::thread_uprobes(),
            breakpoints: tries::breakpoints(),
            membarrier_sync_core: tries::membarrier_sync_core(),
            rseq: tries::rseq(),
            futex_waitv: tries::futex_waitv(),
            process_vm_readv: tries::process_vm_readv(),
            executable_memfd: tries::executable_memfd(),
        }
    }
}

/// Tries the agent's system calls. The result also holds for a command that tiptoe starts, which inherits tiptoe's
/// seccomp filter.
pub fn agent_calls() -> Check {
    tries::membarrier_sync_core()?;
    tries::executable_memfd()?;
    tries::process_vm_readv()
}

impl Refusal {
    fn last(call: &'static str) -> Self {
        Self::from(call, &io::Error::last_os_error())
    }

    fn from(call: &'static str, error: &io::Error) -> Self {
        Self {
            call,
            errno: error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// Returns whether a right is missing. If not, the kernel lacks the feature.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno, libc::EPERM | libc::EACCES)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.errno {
            libc::EPERM => "EPERM",
            libc::EACCES => "EACCES",
            libc::ENOENT => "ENOENT",
            libc::ENOSYS => "ENOSYS",
            libc::EINVAL => "EINVAL",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::ENOSPC => "ENOSPC",
            libc::ENODEV => "ENODEV",
            number => return write!(f, "{}: error {number}", self.call),
        };
        write!(f, "{}: {name}", self.call)
    }
}

impl fmt::Display for BpfKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
            Self::RawTracepoint => "raw_tracepoint",
            Self::PerfEvent => "perf_event",
        })
    }
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().into())
}

fn sysctl(name: &str) -> Option<i32> {
    text(&format!("/proc/sys/{name}"))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_itself() {
        let table = Capabilities::get();
        assert!(!table.kernel.is_empty());
        assert!(table.open_files.soft <= table.open_files.hard);
        for check in [
            table.process_vm_readv,
            table.rseq,
            table.membarrier_sync_core,
        ] {
            if let Err(refusal) = check {
                crate::skipped::skipped("a capability", &std::format!("{refusal}"));
            }
        }
        if table.effective.has(Cap::SysAdmin) && table.hardware_counters.is_ok() {
            assert_eq!(table.software_counters, Ok(()));
        }
    }

    #[test]
    fn refusals_read_well() {
        let refusal = Refusal {
            call: "bpf",
            errno: libc::EPERM,
        };
        assert_eq!(refusal.to_string(), "bpf: EPERM");
        assert!(refusal.is_permission());
        let other = Refusal {
            call: "bpf",
            errno: libc::E2BIG,
        };
        assert_eq!(other.to_string(), "bpf: error 7");
    }
}
