//! Breakpoints that raise SIGTRAP, to measure a hit's cost.

use std::prelude::rust_2024::*;

use std::io;

use super::{Breakpoint, CountedOn, PerfEvent};
use crate::raw::{call, getpid, gettid, monotonic_ns, nr};

/// Until dropped, handles SIGTRAP as tiptoe's code in a target does, but discards the hits.
#[derive(Debug)]
pub struct SigtrapHandler(libc::sigaction);

impl SigtrapHandler {
    /// Installs the handler.
    pub fn install() -> io::Result<SigtrapHandler> {
        // SAFETY: all zeroes are a valid sigaction.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        ours.sa_sigaction = answer as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        // SAFETY: both are initialized; the handler makes only async-signal-safe calls.
        let done = unsafe { libc::sigaction(libc::SIGTRAP, &raw const ours, &raw mut before) };
        match done {
            0 => Ok(SigtrapHandler(before)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SigtrapHandler {
    fn drop(&mut self) {
        // SAFETY: the call restores the action that the kernel returned.
        unsafe { libc::sigaction(libc::SIGTRAP, &raw const self.0, std::ptr::null_mut()) };
    }
}

extern "C" fn answer(_: i32, info: *const libc::siginfo_t, _: *const u8) {
    let (mut name, mut stack) = ([0u64; 2], [0u64; 128]);
    let to = [stack.as_mut_ptr() as usize, size_of_val(&stack)];
    let from = [info as usize, size_of::<libc::siginfo_t>()];
    let (to, from) = (to.as_ptr() as usize, from.as_ptr() as usize);
    // SAFETY: the kernel writes 16 bytes into `name`, and into `stack` at most its size.
    let _ = unsafe {
        let _ = call(nr::PRCTL, [16, name.as_mut_ptr() as usize, 0, 0, 0, 0]);
        call(nr::PROCESS_VM_READV, [getpid() as usize, to, 1, from, 1, 0])
    };
    std::hint::black_box((gettid(), monotonic_ns(), name, stack));
}

impl PerfEvent {
    /// Opens a breakpoint that raises SIGTRAP in the calling thread.
    pub fn signal_accesses(at: &Breakpoint) -> io::Result<Self> {
        let mut attr = at.sampled(false, false);
        attr.set_disabled(0);
        attr.set_remove_on_exec(1);
        attr.set_sigtrap(1);
        Self::open(attr, CountedOn::Thread(0))
    }
}
