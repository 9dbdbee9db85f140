//! Opens breakpoint events that run the BPF program at each hit.

use std::io;
use std::os::fd::BorrowedFd;

use tiptoe_sys::host::perf::{Breakpoint, CountedOn, PerfEvent};

use crate::Error;
use crate::kernel_probe::errno::{
    EACCES, EINVAL, ENODEV, ENOENT, ENOSPC, EOPNOTSUPP, EPERM, ESRCH,
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Opener<'a> {
    pub(super) program: BorrowedFd<'a>,
    pub(super) in_kernel: bool,
}

pub(super) fn open(at: &Breakpoint, on: CountedOn, in_kernel: bool) -> Result<PerfEvent, Error> {
    let event = PerfEvent::open_breakpoint(at, on, in_kernel);
    event.map_err(|error| refusal(error, at, on))
}

impl Opener<'_> {
    pub(super) fn open_inherited(&self, at: &Breakpoint, tid: u32) -> Result<PerfEvent, Error> {
        let event = PerfEvent::open_inherited_breakpoint(at, tid, self.in_kernel);
        let event = event.map_err(|error| refusal(error, at, CountedOn::Thread(tid)))?;
        self.run_at(&event)?;
        Ok(event)
    }

    pub(super) fn run_at(&self, event: &PerfEvent) -> Result<(), Error> {
        let attached = event.run_program(self.program);
        attached.map_err(Error::io("attach a BPF program to a breakpoint"))
    }
}

pub(super) fn cannot_switch_on(source: io::Error) -> Error {
    Error::io("switch a breakpoint on")(source)
}

pub(super) fn cannot_move(source: io::Error) -> Error {
    Error::io("move a breakpoint to another variable")(source)
}

pub(super) fn refusal(source: io::Error, at: &Breakpoint, on: CountedOn) -> Error {
    let Breakpoint { address, len, .. } = *at;
    match source.raw_os_error() {
        Some(ENOSPC) => Error::NoSlot { on },
        Some(EPERM | EACCES) => Error::BreakpointDenied,
        Some(ESRCH) => Error::NoSuchThread,
        Some(ENODEV | ENOENT | EOPNOTSUPP) => Error::NoBreakpoints,
        Some(EINVAL) => Error::BadBreakpoint { address, len },
        _ => Error::io(format!("cannot watch {address:#x}"))(source),
    }
}
