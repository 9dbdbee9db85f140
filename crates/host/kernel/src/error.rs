use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tiptoe_event::ShellWord;
use tiptoe_sys::host::Error as SysError;
use tiptoe_sys::host::capabilities::SETCAP;
use tiptoe_sys::host::perf::CountedOn;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Linux is older than 4.17, or built without uprobes.
    #[error("this kernel has no uprobes for perf events")]
    Unsupported,
    /// A right is missing, or a security policy forbids uprobes.
    #[error("no permission to arm kernel uprobes")]
    PermissionDenied,
    /// The process, or each thread to count, has ended.
    #[error("the process to be probed has ended")]
    NoSuchThread,
    /// No such file.
    #[error("{}: no such file", path.display())]
    NoSuchFile {
        /// The file.
        path: PathBuf,
    },
    /// The offset is after the file's end, or the file cannot be mapped.
    #[error("{}: nothing to probe at offset {offset:#x}", path.display())]
    BadOffset {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
    },
    /// The instruction can neither be emulated nor single-stepped.
    #[error("{}: the kernel cannot probe the instruction at offset {offset:#x}", path.display())]
    Unprobeable {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
    },
    /// The user interrupted the attach.
    #[error("attaching was broken off")]
    BrokenOff,
    /// Memory, descriptors or another limited resource ran out.
    #[error("the kernel has no room for this many probes")]
    NoRoom,
    /// Not permitted.
    #[error("no permission to load BPF programs, which count in the kernel")]
    BpfDenied,
    /// The verifier rejects a program of ours.
    #[error("this kernel rejects tiptoe's BPF programs: it did not {what}")]
    BpfRejected {
        /// The failed action.
        what: String,
    },
    /// Before Linux 6.10, a BPF program cannot decide at which hit its event stops.
    #[error("breakpoints on all CPUs need Linux 6.10")]
    NoHitLimit,
    /// The kernel does not describe its types.
    #[error("this kernel has no BTF (/sys/kernel/btf/vmlinux), so BPF programs cannot be loaded")]
    NoBtf,
    /// The kernel is too old, or built without the tracepoint.
    #[error("this kernel has no tracepoint {name}")]
    NoTracepoint {
        /// The group and name.
        name: String,
    },
    /// tracefs, which names tracepoints, is unreadable.
    #[error("the kernel's list of tracepoints cannot be read: tracefs is {}", if *is_mounted { "closed to this user" } else { "not mounted" })]
    NoTracefs {
        /// Whether tracefs is mounted.
        is_mounted: bool,
    },
    /// All debug registers are in use.
    #[error("no debug register is left {}", match on {
        CountedOn::Cpu(cpu) | CountedOn::Cgroup { cpu, .. } => format!("on cpu {cpu}"),
        CountedOn::Thread(0) => "for this thread".to_owned(),
        CountedOn::Thread(tid) => format!("for thread {tid}"),
    })]
    NoSlot {
        /// The CPU or thread.
        on: CountedOn,
    },
    /// The text names this tiptoe's watches that hold the debug registers.
    #[error("{0}")]
    Slots(String),
    /// The text names this user's other tiptoes that hold debug registers.
    #[error("{0}")]
    HeldByOthers(String),
    /// This user may not watch whole CPUs.
    #[error("no permission for breakpoints on all CPUs")]
    BreakpointDenied,
    /// The machine has no debug registers.
    #[error("this kernel has no hardware breakpoints")]
    NoBreakpoints,
    /// The processor cannot watch this range.
    #[error("the processor cannot watch {len} bytes at {address:#x}")]
    BadBreakpoint {
        /// The address.
        address: u64,
        /// The length in bytes.
        len: u8,
    },
    /// Not permitted.
    #[error("no permission to count '{name}' {whose}")]
    CounterDenied {
        /// The event.
        name: String,
        /// The target, as in `of the whole system`.
        whose: String,
    },
    /// The event cannot be counted.
    #[error(transparent)]
    Counter(Box<CounterRefusal>),
    /// An error of `tiptoe_sys`.
    #[error(transparent)]
    System(#[from] SysError),
    /// Any other failure.
    #[error("{what}: {source}")]
    Io {
        /// The failed action.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Why an event cannot be counted.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what it means")]
pub enum CounterRefusal {
    #[error("this machine has no PMU '{name}'")]
    NoPmu { name: String, known: Vec<String> },
    #[error("the PMU '{pmu}' has no term '{}'", term.escape_debug())]
    NoTerm {
        pmu: String,
        term: String,
        near: Vec<String>,
        known: Vec<String>,
    },
    #[error("'{pmu}/{term}/': not a number")]
    NoNumber { pmu: String, term: String },
    #[error("'{pmu}/{term}/': the value does not fit")]
    TooLarge {
        pmu: String,
        term: String,
        field: String,
        format: String,
    },
    #[error("no tracepoint '{group}:{name}' in this kernel")]
    NoTracepoint {
        group: String,
        name: String,
        near: Vec<String>,
        folder: PathBuf,
    },
    #[error("{count} events are too many to read at each switch between cgroups")]
    ManyEvents { count: usize, most: usize },
}

impl From<CounterRefusal> for Error {
    fn from(refusal: CounterRefusal) -> Error {
        Error::Counter(Box::new(refusal))
    }
}

impl CounterRefusal {
    fn hint(&self) -> String {
        match self {
            Self::NoPmu { known, .. } => format!("this machine has {}", known.join(", ")),
            Self::NoTerm { known, .. } if known.is_empty() => "it has no terms".to_owned(),
            Self::NoTerm { near, known, .. } if near.is_empty() => {
                format!("terms: {}", known.join(", "))
            }
            Self::NoTracepoint { near, folder, .. } if near.is_empty() => {
                format!(
                    "`ls {}` names them",
                    ShellWord(folder.as_os_str().as_bytes())
                )
            }
            Self::NoTerm { near, .. } | Self::NoTracepoint { near, .. } => {
                format!("similar names: {}", near.join(", "))
            }
            Self::NoNumber { .. } => "numbers are decimal, or hexadecimal after 0x".to_owned(),
            Self::TooLarge { field, format, .. } => format!("'{field}' is {format}"),
            Self::ManyEvents { most, .. } => format!("{most} at most"),
        }
    }
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        |source| Error::Io {
            what: what.into(),
            source,
        }
    }

    /// Returns what the user can do, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unsupported => Some("use `--via agent`".into()),
            Self::PermissionDenied
            | Self::BpfDenied
            | Self::BreakpointDenied
            | Self::CounterDenied { .. } => Some(format!("run as root, or `{SETCAP}`")),
            Self::BpfRejected { .. } => {
                Some("use Linux 6.1 or later; if you do, please report it, with what `tiptoe bug` writes".into())
            }
            Self::NoBtf => Some("use a kernel that is built with CONFIG_DEBUG_INFO_BTF".into()),
            Self::NoTracefs { is_mounted: true } => Some("run as root".into()),
            Self::NoTracefs { is_mounted: false } => {
                Some("`mount -t tracefs tracefs /sys/kernel/tracing` as root".into())
            }
            Self::NoTracepoint { name } if name.starts_with("syscalls:") => {
                Some("use a kernel that is built with CONFIG_FTRACE_SYSCALLS".into())
            }
            Self::NoTracepoint { name }
                if name.starts_with("cgroup:") || name.starts_with("sched:") =>
            {
                Some("use Linux 5.12 or later, with CONFIG_CGROUPS and CONFIG_TRACING".into())
            }
            Self::NoTracepoint { .. } => Some(
                "use Linux 5.19 or later, or for mmap_lock:* (`--every`) 5.11, with CONFIG_TRACING"
                    .into(),
            ),
            Self::Slots(_) => Some(
                "watch fewer variables at a time, or have them take turns with `--rotate 100ms`; \
                 `--all-slots` also uses the register that is left to debuggers"
                    .into(),
            ),
            Self::HeldByOthers(_) => Some("watch fewer variables, or end that watch first".into()),
            Self::NoRoom => Some("request fewer functions".into()),
            Self::Counter(refusal) => Some(refusal.hint()),
            Self::System(error) => error.hint(),
            _ => None,
        }
    }

    /// Returns whether another way to count may work, because a right or a kernel feature is missing.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::BpfDenied
            | Self::BpfRejected { .. }
            | Self::NoBtf
            | Self::PermissionDenied
            | Self::CounterDenied { .. } => true,
            Self::NoTracepoint { name } => {
                name.starts_with("cgroup:") || name.starts_with("sched:sched_")
            }
            _ => false,
        }
    }

    pub(crate) fn is_of_one_probe(&self) -> bool {
        matches!(
            self,
            Self::NoSuchFile { .. }
                | Self::BadOffset { .. }
                | Self::Unprobeable { .. }
                | Self::BrokenOff
        )
    }
}
