//! Puts kernel uprobes on a program, as perf does.

use std::ffi::CString;
use std::fs::{DirEntry, File};
use std::io::Read;
use std::os::fd::FromRawFd;
use std::path::Path;

use crate::memory::file_offset;

const PMU: &str = "/sys/bus/event_source/devices/uprobe/type";

#[repr(C)]
#[derive(Default)]
pub(crate) struct Attr {
    pub(crate) kind: u32,
    pub(crate) size: u32,
    pub(crate) config: u64,
    pub(crate) period: u64,
    pub(crate) sample: u64,
    pub(crate) read_format: u64,
    pub(crate) flags: u64,
    pub(crate) wakeup: u32,
    pub(crate) breakpoint: u32,
    pub(crate) path: u64,
    pub(crate) offset: u64,
}

/// An instruction of a running program.
#[derive(Debug, Clone)]
pub struct ProbePoint {
    thread: i32,
    path: CString,
    offset: u64,
    kind: u32,
}

impl ProbePoint {
    /// Returns the first instruction of `symbol`. A probe at this point counts only hits of the process's newest
    /// thread. `None` if the kernel has no uprobe events.
    pub fn new(pid: u32, program: &Path, symbol: &str) -> Option<ProbePoint> {
        let kind = std::fs::read_to_string(PMU).ok()?.trim().parse().ok()?;
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the program lives");
        let number = |task: DirEntry| task.file_name().to_str()?.parse().ok();
        Some(ProbePoint {
            thread: tasks.flatten().filter_map(number).max()?,
            path: CString::new(program.to_str().expect("text")).expect("no zero in a path"),
            offset: file_offset(pid, program, symbol),
            kind,
        })
    }

    /// Returns the point `bytes` later.
    #[must_use]
    pub fn after(mut self, bytes: u64) -> ProbePoint {
        self.offset += bytes;
        self
    }

    /// Puts a uprobe at the point, until the result is dropped.
    pub fn arm(&self) -> ForeignProbe {
        self.open(false)
    }

    /// Puts a return uprobe at the point, until the result is dropped.
    pub fn arm_return(&self) -> ForeignProbe {
        self.open(true)
    }

    fn open(&self, is_return: bool) -> ForeignProbe {
        let attr = Attr {
            kind: self.kind,
            size: size_of::<Attr>() as u32,
            config: u64::from(is_return),
            path: self.path.as_ptr() as u64,
            offset: self.offset,
            ..Attr::default()
        };
        ForeignProbe(open(&attr, self.thread))
    }
}

/// A kernel uprobe.
#[derive(Debug)]
pub struct ForeignProbe(File);

impl ForeignProbe {
    /// Returns the hits so far.
    pub fn count(&self) -> u64 {
        let mut bytes = [0; 8];
        (&self.0).read_exact(&mut bytes).expect("a counter");
        u64::from_ne_bytes(bytes)
    }
}

pub(crate) fn open(attr: &Attr, thread: i32) -> File {
    let (any_cpu, no_group, close_on_exec) = (-1, -1, 8);
    // SAFETY: the record and its path outlive the call.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attr,
            thread,
            any_cpu,
            no_group,
            close_on_exec,
        )
    };
    let error = std::io::Error::last_os_error();
    assert!(event >= 0, "no uprobe at {:#x}: {error}", attr.offset);
    // SAFETY: nothing else owns the new descriptor.
    unsafe { File::from_raw_fd(event as i32) }
}
