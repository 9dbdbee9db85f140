//! Why the kernel would not arm a probe.

use std::io;
use std::path::PathBuf;

use tiptoe_sys::host::Error as SysError;
use tiptoe_sys::host::capabilities::SETCAP;
use tiptoe_sys::host::perf::On;

/// Refusals of the kernel's probes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Linux before 4.17, or built without uprobes.
    #[error("this kernel has no uprobes for perf events")]
    Unsupported,
    /// A capability is missing, or a security policy says no.
    #[error("no permission to arm kernel uprobes")]
    PermissionDenied,
    /// The process, or all of the threads, are gone.
    #[error("the process to be probed has ended")]
    NoSuchThread,
    /// There is no such file.
    #[error("{}: no such file", path.display())]
    NoSuchFile {
        /// The file of the probe.
        path: PathBuf,
    },
    /// The file does not reach that far, or is none that can be mapped.
    #[error("{}: nothing to probe at offset {offset:#x}", path.display())]
    BadOffset {
        /// The file of the probe.
        path: PathBuf,
        /// The offset asked for.
        offset: u64,
    },
    /// The kernel can neither emulate nor single-step what stands there.
    #[error("{}: the kernel cannot probe the instruction at offset {offset:#x}", path.display())]
    Unprobeable {
        /// The file of the probe.
        path: PathBuf,
        /// The offset asked for.
        offset: u64,
    },
    /// The kernel has no room left.
    #[error("the kernel has no room for so many probes")]
    NoRoom,
    /// A capability is missing, or a security policy says no.
    #[error("no permission to load BPF programs, which count in the kernel")]
    BpfDenied,
    /// A kernel that does not describe its types.
    #[error(
        "this kernel has no BTF (/sys/kernel/btf/vmlinux), which BPF programs are fitted to it by"
    )]
    NoBtf,
    /// A kernel that is too old, or built without it.
    #[error("this kernel has no tracepoint {name}")]
    NoTracepoint {
        /// Its group and name.
        name: String,
    },
    /// Where the kernel names its tracepoints is not mounted, or closed to this user.
    #[error("the kernel's list of tracepoints cannot be read: tracefs is {}", if *mounted { "closed to this user" } else { "not mounted" })]
    NoTracefs {
        /// Whether it is there at all.
        mounted: bool,
    },
    /// All debug registers are taken.
    #[error("no debug register is left {}", match on {
        On::Cpu(cpu) | On::Cgroup { cpu, .. } => format!("on cpu {cpu}"),
        On::Thread(0) => "for this thread".to_owned(),
        On::Thread(tid) => format!("for thread {tid}"),
    })]
    NoSlot {
        /// Where.
        on: On,
    },
    /// All debug registers that there are for it are taken by tiptoe itself, in words.
    #[error("{0}")]
    Slots(String),
    /// Not everybody may watch what all threads do.
    #[error("no permission for breakpoints on all CPUs")]
    BreakpointDenied,
    /// No debug registers, or a kernel without their use.
    #[error("this kernel has no hardware breakpoints")]
    NoBreakpoints,
    /// The processor cannot watch this.
    #[error("the processor cannot watch {len} bytes at {address:#x}")]
    BadBreakpoint {
        /// Where.
        address: u64,
        /// How many.
        len: u8,
    },
    /// A capability is missing, or a security policy says no.
    #[error("no permission to count '{name}' {whose}")]
    CounterDenied {
        /// The event.
        name: String,
        /// Whose: `of the whole system`.
        whose: String,
    },
    /// An event that cannot be counted, in words, and what to do about it.
    #[error("{what}")]
    Counter {
        /// What is wrong.
        what: String,
        /// What to do.
        hint: String,
    },
    /// Something about the process or this one's limits.
    #[error(transparent)]
    System(#[from] SysError),
    /// Any other answer.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// What to do about it: a command or a right, where one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unsupported => Some("use `--via agent`".into()),
            Self::PermissionDenied
            | Self::BpfDenied
            | Self::BreakpointDenied
            | Self::CounterDenied { .. } => Some(format!("run as root, or `{SETCAP}`")),
            Self::NoBtf => Some("use a kernel that is built with CONFIG_DEBUG_INFO_BTF".into()),
            Self::NoTracefs { mounted: true } => Some("run as root".into()),
            Self::NoTracefs { mounted: false } => {
                Some("`mount -t tracefs tracefs /sys/kernel/tracing` as root".into())
            }
            Self::NoTracepoint { name } if name.starts_with("syscalls:") => {
                Some("use a kernel that is built with CONFIG_FTRACE_SYSCALLS".into())
            }
            Self::NoTracepoint { name } if name.starts_with("cgroup:") || name.starts_with("sched:") => {
                Some("use Linux 5.12 or later, with CONFIG_CGROUPS and CONFIG_TRACING".into())
            }
            Self::NoTracepoint { .. } => Some(
                "use Linux 5.19 or later, or for mmap_lock:* (`--every`) 5.11, with CONFIG_TRACING"
                    .into(),
            ),
            Self::Slots(_) => Some(
                "watch fewer variables at a time, or have them take turns with `--rotate 100ms`; `--all-slots` takes \
                 the one that is left to debuggers"
                    .into(),
            ),
            Self::NoRoom => Some("ask for fewer functions".into()),
            Self::Counter { hint, .. } => Some(hint.clone()),
            Self::System(error) => error.hint(),
            _ => None,
        }
    }

    /// Whether it is this user, or this kernel, that may not have what is asked for by these means.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::BpfDenied | Self::NoBtf | Self::PermissionDenied | Self::CounterDenied { .. } => {
                true
            }
            Self::NoTracepoint { name } => {
                name.starts_with("cgroup:") || name.starts_with("sched:sched_")
            }
            _ => false,
        }
    }

    /// It concerns this one probe; others may still be armed.
    pub(crate) fn is_of_one_probe(&self) -> bool {
        matches!(
            self,
            Self::NoSuchFile { .. } | Self::BadOffset { .. } | Self::Unprobeable { .. }
        )
    }
}
