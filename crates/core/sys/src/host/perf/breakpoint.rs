use std::prelude::rust_2024::*;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use perf_event_open_sys::ioctls;

use super::{Attr, CountedOn, PerfEvent, abi, attr, complete};

/// The accesses that a breakpoint counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Stores.
    Write,
    /// Stores and loads, because x86 has no breakpoint on loads alone.
    ReadWrite,
    /// Execution.
    Execute,
}

/// A breakpoint's address and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Breakpoint {
    /// The address, a multiple of `len`.
    pub address: u64,
    /// 1, 2, 4 or 8 bytes; ignored for code.
    pub len: u8,
    /// The accesses to count.
    pub access: Access,
}

impl Breakpoint {
    fn attr(&self) -> Attr {
        let mut attr = attr(abi::PERF_TYPE_BREAKPOINT, 0);
        attr.bp_type = match self.access {
            Access::Write => abi::HW_BREAKPOINT_W,
            Access::ReadWrite => abi::HW_BREAKPOINT_RW,
            Access::Execute => abi::HW_BREAKPOINT_X,
        };
        attr.__bindgen_anon_3.bp_addr = self.address;
        attr.__bindgen_anon_4.bp_len = match self.access {
            Access::Execute => size_of::<u64>() as u64,
            _ => u64::from(self.len),
        };
        attr
    }

    pub(super) fn sampled(&self, in_kernel: bool, is_inherited: bool) -> Attr {
        let mut attr = self.attr();
        attr.__bindgen_anon_1.sample_period = 1;
        attr.__bindgen_anon_2.wakeup_events = 1;
        attr.set_exclude_kernel(u64::from(!in_kernel));
        attr.set_exclude_hv(1);
        let is_inherited = u64::from(is_inherited);
        attr.set_inherit(is_inherited);
        attr.set_inherit_thread(is_inherited);
        attr.set_remove_on_exec(is_inherited);
        attr
    }
}

impl PerfEvent {
    /// Opens a disabled breakpoint that samples each access; without a BPF program the samples are discarded.
    /// `in_kernel` includes the kernel's accesses, which needs a right. Fails with `StorageFull` if all debug
    /// registers are taken.
    pub fn open_breakpoint(at: &Breakpoint, on: CountedOn, in_kernel: bool) -> io::Result<Self> {
        let mut attr = at.sampled(in_kernel, false);
        attr.set_disabled(1);
        Self::open(attr, on)
    }

    /// Opens an enabled breakpoint for a thread and the threads that it creates, until an exec.
    pub fn open_inherited_breakpoint(
        at: &Breakpoint,
        tid: u32,
        in_kernel: bool,
    ) -> io::Result<Self> {
        Self::open(at.sampled(in_kernel, true), CountedOn::Thread(tid))
    }

    /// Moves a breakpoint and its inherited copies, and disables them.
    pub fn move_breakpoint(
        &self,
        at: &Breakpoint,
        in_kernel: bool,
        is_inherited: bool,
    ) -> io::Result<()> {
        let mut attr = complete(at.sampled(in_kernel, is_inherited));
        attr.set_disabled(1);
        // SAFETY: the descriptor is open. The attributes have their stated size, and outlive the call.
        answer(unsafe { ioctls::MODIFY_ATTRIBUTES(self.0.as_raw_fd(), &raw mut attr) })
    }

    /// Opens an enabled breakpoint that ignores the kernel's accesses. Fails as [`PerfEvent::open_breakpoint`] does.
    pub fn count_accesses(at: &Breakpoint, on: CountedOn, is_inherited: bool) -> io::Result<Self> {
        let mut attr = at.attr();
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        attr.set_inherit(u64::from(is_inherited));
        Self::open(attr, on)
    }

    /// Runs a perf_event program at each sample.
    pub fn run_program(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let program = program.as_raw_fd() as u32;
        // SAFETY: both descriptors are open, and the kernel checks their types.
        answer(unsafe { ioctls::SET_BPF(self.0.as_raw_fd(), program) })
    }

    /// Enables the event, with its inherited copies.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the argument is a number.
        answer(unsafe { ioctls::ENABLE(self.0.as_raw_fd(), 0) })
    }

    /// Disables the event, with its inherited copies.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the argument is a number.
        answer(unsafe { ioctls::DISABLE(self.0.as_raw_fd(), 0) })
    }

    /// Enables the event for `samples` more samples. Sets the period again, because otherwise a breakpoint that used
    /// up its samples would stop the program at each access but take no sample (seen on Linux 6.18).
    pub fn refresh(&self, samples: u32) -> io::Result<()> {
        let period = 1u64;
        let samples = i32::try_from(samples).unwrap_or(i32::MAX);
        // SAFETY: the descriptor is open, and the argument is a number.
        answer(unsafe { ioctls::REFRESH(self.0.as_raw_fd(), samples) })?;
        // SAFETY: the descriptor is open, and the number outlives the call.
        answer(unsafe { ioctls::PERIOD(self.0.as_raw_fd(), (&raw const period) as u64) })
    }
}

fn answer(result: i32) -> io::Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
