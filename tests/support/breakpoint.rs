//! Takes debug registers. Tests that take them must run one at a time, because a CPU has only four.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use crate::turn;

const BREAKPOINT: u64 = 5;
/// Flags: disabled, exclude_kernel, exclude_hv.
const IDLE: u64 = 1 | 1 << 5 | 1 << 6;
const CLOEXEC: u64 = 8;
const MODIFY_ATTRIBUTES: libc::c_ulong = 0x4008_240b;
static WATCHED: u64 = 0;

/// What a breakpoint stops at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Writes.
    Write,
    /// Reads and writes.
    Any,
    /// Execution.
    Execute,
}

/// A breakpoint that is never hit.
#[derive(Debug)]
pub struct Breakpoint(File);

impl Breakpoint {
    /// Opens a breakpoint for a thread or a CPU.
    pub fn open(thread: Option<i32>, cpu: Option<u32>, access: Access) -> io::Result<Breakpoint> {
        let words = attr(access);
        let thread = thread.unwrap_or(-1);
        let cpu = cpu.map_or(-1, u32::cast_signed);
        // SAFETY: the perf_event_attr has the stated size, and outlives the call.
        let fd = unsafe {
            let number = libc::SYS_perf_event_open;
            let opened = libc::syscall(number, words.as_ptr(), thread, cpu, -1, CLOEXEC);
            i32::try_from(opened).unwrap_or(-1)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: nothing else owns the new descriptor.
        Ok(Breakpoint(unsafe { File::from_raw_fd(fd) }))
    }

    /// Changes what the breakpoint stops at.
    pub fn change(&self, access: Access) -> io::Result<()> {
        let words = attr(access);
        // SAFETY: the perf_event_attr has the stated size, and outlives the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), MODIFY_ATTRIBUTES, words.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Opens at most 32 breakpoints, until the kernel refuses.
    pub fn all(thread: Option<i32>, cpu: Option<u32>, access: Access) -> Vec<Breakpoint> {
        let open = std::iter::from_fn(|| Breakpoint::open(thread, cpu, access).ok());
        open.take(32).collect()
    }
}

fn attr(access: Access) -> [u64; 16] {
    let (bits, length) = match access {
        Access::Write => (2, 1),
        Access::Any => (3, 4),
        Access::Execute => (4, 8),
    };
    let mut words = [0u64; 16];
    words[0] = BREAKPOINT | (size_of_val(&words) as u64) << 32;
    words[5] = IDLE;
    words[6] = bits << 32;
    words[7] = &raw const WATCHED as u64;
    words[8] = length;
    words
}

/// Stops a process with one thread. The calling thread becomes its debugger.
pub fn trace(pid: i32) -> io::Result<()> {
    let (none, options, mut status) = (0usize, libc::PTRACE_O_EXITKILL as usize, 0);
    // SAFETY: the status outlives the calls.
    unsafe {
        answer(libc::ptrace(libc::PTRACE_SEIZE, pid, none, options))?;
        answer(libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none))?;
        answer(libc::waitpid(pid, &raw mut status, libc::__WALL).into())
    }
}

/// Takes a thread's debug register, until that thread ends.
pub fn poke(tid: i32, number: usize) -> io::Result<()> {
    let at = offset_of!(libc::user, u_debugreg) + 8 * number;
    let address = &raw const WATCHED as u64;
    // SAFETY: the call takes numbers.
    answer(unsafe { libc::ptrace(libc::PTRACE_POKEUSER, tid, at, address) })
}

fn answer(result: i64) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The right to use debug registers.
#[derive(Debug)]
pub struct RegisterLock(#[expect(dead_code, reason = "its lock ends with it")] File);

impl RegisterLock {
    /// Waits until no other test has the right, even one of another checkout.
    pub fn wait() -> RegisterLock {
        RegisterLock(turn::wait(Path::new(
            "/sys/bus/event_source/devices/breakpoint",
        )))
    }
}
