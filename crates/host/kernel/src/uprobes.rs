//! Counting uprobes, by the best means that this kernel and user have.
//!
//! How a hit is counted: the kernel puts a breakpoint where the file's offset
//! is mapped in the target; a thread that runs into it adds one to a counter.
//!
//! | means | needs | who counts |
//! |---|---|---|
//! | BPF, `process` module | Linux 6.6, `CAP_BPF` and `CAP_PERFMON` | the process: all threads, also those that start later |
//! | perf events, `threads` module | Linux 4.17, `CAP_SYS_ADMIN` | the threads that were there when it was opened |
//!
//! The second is taken where the first is refused, and for a process whose main
//! thread has ended already. Perf events cannot follow new threads: one with `inherit` set makes the
//! target's clone(2) fail with EFAULT, because the kernel reads the probe's path
//! again in the target's memory (seen on Linux 6.18). [`UprobeSet::who`] tells
//! which it is, so that a report never passes one off as the other.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tiptoe_event::Reading;
use tiptoe_sys::host::Process;
use tiptoe_sys::host::bpf::UprobeCounters;

use crate::Error;
use crate::execs::Execs;
use crate::process::ProcessProbes;
use crate::threads::ThreadProbes;

/// Where to count: an instruction of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelProbe {
    /// The file as *tiptoe* sees it. For a target in a container, open the file with
    /// [`Process::open_mapped`] and give [`path_of`](tiptoe_sys::host::procfs::path_of) it;
    /// the file must stay open until the set is.
    pub path: PathBuf,
    /// The offset in the file of the instruction.
    pub offset: u64,
}

/// A probe that the kernel would not take, by its place in the list.
#[derive(Debug)]
pub struct Refused {
    /// Its index in the list given to `open`.
    pub probe: usize,
    /// Why.
    pub error: Error,
}

/// Whose hits a set counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// All threads of the process, whenever they start.
    Process,
    /// These threads only.
    Threads(Vec<u32>),
}

/// Probes that count, until this is dropped.
#[derive(Debug)]
pub struct UprobeSet {
    means: Means,
    refused: Vec<Refused>,
    opened: Instant,
    execs: Option<Execs>,
}

#[derive(Debug)]
enum Means {
    Process(ProcessProbes),
    Threads(ThreadProbes),
}

impl UprobeSet {
    /// Counts these probes in a process: in all its threads if that can be had.
    ///
    /// The process may be stopped, and may not have called exec yet: probes are
    /// places in files, and are armed when the file is mapped.
    pub fn open(process: Process, probes: &[KernelProbe]) -> Result<Self, Error> {
        let execs = Execs::of(process);
        let set = Self::open_best(process, probes)?;
        Ok(Self { execs, ..set })
    }

    fn open_best(process: Process, probes: &[KernelProbe]) -> Result<Self, Error> {
        match UprobeCounters::new(probes.len()) {
            // The kernel knows a process by its main thread, whose memory must be there.
            Ok(counters) if !process.outlived_main_thread() => {
                let (means, refused) = ProcessProbes::open(counters, process, probes)?;
                Ok(Self::new(Means::Process(means), refused))
            }
            _ => Self::open_threads(&process.threads()?, probes),
        }
    }

    /// Counts these probes in these threads alone, with one perf event for each of both.
    pub fn open_threads(threads: &[u32], probes: &[KernelProbe]) -> Result<Self, Error> {
        let (means, refused) = ThreadProbes::open(threads, probes)?;
        Ok(Self::new(Means::Threads(means), refused))
    }

    fn new(means: Means, refused: Vec<Refused>) -> Self {
        Self {
            means,
            refused,
            opened: Instant::now(),
            execs: None,
        }
    }

    /// The counts so far, in the order of the probes; those refused have counted nothing.
    pub fn read(&self) -> Result<Vec<Reading>, Error> {
        let counts = match &self.means {
            Means::Process(probes) => probes.read(),
            Means::Threads(probes) => probes.read(),
        };
        let counts = counts.map_err(|source| Error::Io {
            what: "read the counts of kernel uprobes".into(),
            source,
        })?;
        let elapsed = self.elapsed().as_nanos() as u64;
        let reading = |count| Reading {
            count,
            time_enabled_ns: elapsed,
            time_running_ns: elapsed,
            ..Reading::default()
        };
        Ok(counts.into_iter().map(reading).collect())
    }

    /// The probes that the kernel would not take.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Whose hits are counted.
    pub fn who(&self) -> Who {
        match &self.means {
            Means::Process(_) => Who::Process,
            Means::Threads(probes) => Who::Threads(probes.threads().to_vec()),
        }
    }

    /// Whether the process's main thread has called exec since, as far as the kernel tells:
    /// the probes count on in the new program, where it maps the same files.
    pub fn has_execed(&self) -> bool {
        self.execs.as_ref().is_some_and(Execs::any)
    }

    /// For how long it has counted.
    pub fn elapsed(&self) -> Duration {
        self.opened.elapsed()
    }
}

/// The kernel's answer to a place, in our words.
pub(crate) fn refusal(source: io::Error, probe: &KernelProbe) -> Error {
    let (path, offset) = (probe.path.clone(), probe.offset);
    match source.raw_os_error() {
        Some(errno::EPERM | errno::EACCES) => Error::PermissionDenied,
        Some(errno::ESRCH) => Error::NoSuchThread,
        Some(errno::ENOENT) => Error::NoSuchFile { path },
        Some(errno::EINVAL | errno::EIO | errno::EBADF) => Error::BadOffset { path, offset },
        Some(errno::ENOTSUPP | errno::EOPNOTSUPP) => Error::Unprobeable { path, offset },
        Some(errno::E2BIG | errno::ENOMEM | errno::ENFILE | errno::EMFILE | errno::ENOSPC) => {
            Error::NoRoom
        }
        _ => Error::Io {
            what: format!("arm a uprobe at {}:{offset:#x}", path.display()),
            source,
        },
    }
}

/// Error numbers that arming a uprobe is known to give.
pub(crate) mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const ESRCH: i32 = 3;
    pub const EIO: i32 = 5;
    pub const E2BIG: i32 = 7;
    pub const EBADF: i32 = 9;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENFILE: i32 = 23;
    pub const EMFILE: i32 = 24;
    pub const ENOSPC: i32 = 28;
    pub const EOPNOTSUPP: i32 = 95;
    /// An instruction that uprobes cannot run; the kernel's own, not POSIX's.
    pub const ENOTSUPP: i32 = 524;
}
