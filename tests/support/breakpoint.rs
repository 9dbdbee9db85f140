//! Takes debug registers by perf_event_open. Tests that take any must run one at a time, because a CPU has only four.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::path::Path;

use crate::turn;

const BREAKPOINT: u64 = 5;
/// Attribute flags: disabled, exclude_kernel, exclude_hv.
const IDLE: u64 = 1 | 1 << 5 | 1 << 6;
const CLOEXEC: u64 = 8;

/// The kind of access that a breakpoint stops at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes only.
    Write,
    /// Reads and writes.
    Any,
    /// Execution.
    Execute,
}

/// A breakpoint that takes a debug register and is never hit.
#[derive(Debug)]
pub struct Breakpoint(#[expect(dead_code, reason = "held open")] File);

impl Breakpoint {
    /// Opens a breakpoint for a thread (on all CPUs or on one) or for a CPU (without a thread).
    pub fn open(thread: Option<i32>, cpu: Option<u32>, access: Access) -> io::Result<Breakpoint> {
        static WATCHED: u64 = 0;
        let (bits, length) = match access {
            Access::Write => (2, 1),
            Access::Any => (3, 4),
            Access::Execute => (4, 8),
        };
        let mut words = [0u64; 16];
        let size = size_of_val(&words) as u64;
        words[0] = BREAKPOINT | size << 32;
        words[5] = IDLE;
        words[6] = bits << 32;
        words[7] = &raw const WATCHED as u64;
        words[8] = length;
        let thread = thread.unwrap_or(-1);
        let cpu = cpu.map_or(-1, u32::cast_signed);
        // SAFETY: the words are a perf_event_attr of the size that they state, and outlive the call.
        let fd = unsafe {
            let number = libc::SYS_perf_event_open;
            let opened = libc::syscall(number, words.as_ptr(), thread, cpu, -1, CLOEXEC);
            i32::try_from(opened).unwrap_or(-1)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(Breakpoint(unsafe { File::from_raw_fd(fd) }))
    }

    /// Opens breakpoints until the kernel refuses one, at most 32.
    pub fn all(thread: Option<i32>, cpu: Option<u32>, access: Access) -> Vec<Breakpoint> {
        let open = std::iter::from_fn(|| Breakpoint::open(thread, cpu, access).ok());
        open.take(32).collect()
    }
}

/// The right to use debug registers. Only one test has it at a time, until this is dropped.
#[derive(Debug)]
pub struct RegisterLock(#[expect(dead_code, reason = "its lock ends with it")] File);

impl RegisterLock {
    /// Waits for the right to use debug registers. Tests of other checkouts may hold it too, because the whole machine
    /// has only these registers.
    pub fn wait() -> RegisterLock {
        RegisterLock(turn::wait(Path::new(
            "/sys/bus/event_source/devices/breakpoint",
        )))
    }
}
