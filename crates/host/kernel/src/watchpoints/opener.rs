//! Events that run the program at each hit.

use std::io;
use std::os::fd::BorrowedFd;

use tiptoe_sys::host::perf::{Breakpoint, On, PerfEvent};

use crate::Error;
use crate::uprobes::errno::{EACCES, EINVAL, ENODEV, ENOENT, ENOSPC, EOPNOTSUPP, EPERM, ESRCH};

/// What all events are opened with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opener<'a> {
    pub(super) program: BorrowedFd<'a>,
    /// Whether accesses by the kernel count, too.
    pub(super) in_kernel: bool,
}

impl Opener<'_> {
    /// One that is off.
    pub(super) fn open(&self, at: &Breakpoint, on: On) -> Result<PerfEvent, Error> {
        let event = PerfEvent::open_breakpoint(at, on, self.in_kernel);
        self.with_program(event.map_err(|error| refusal(error, at, on))?)
    }

    /// One of a thread and all that come of it, which is on.
    pub(super) fn open_inherited(&self, at: &Breakpoint, tid: u32) -> Result<PerfEvent, Error> {
        let event = PerfEvent::open_inherited_breakpoint(at, tid, self.in_kernel);
        self.with_program(event.map_err(|error| refusal(error, at, On::Thread(tid)))?)
    }

    fn with_program(&self, event: PerfEvent) -> Result<PerfEvent, Error> {
        let attached = event.run_program(self.program);
        attached.map_err(|source| Error::Io {
            what: "attach a BPF program to a breakpoint".into(),
            source,
        })?;
        Ok(event)
    }
}

pub(super) fn cannot_switch_on(source: io::Error) -> Error {
    Error::Io {
        what: "switch a breakpoint on".into(),
        source,
    }
}

pub(super) fn cannot_move(source: io::Error) -> Error {
    Error::Io {
        what: "move a breakpoint to another variable".into(),
        source,
    }
}

/// The kernel's answer to a breakpoint, in our words.
fn refusal(source: io::Error, at: &Breakpoint, on: On) -> Error {
    let Breakpoint { address, len, .. } = *at;
    match source.raw_os_error() {
        Some(ENOSPC) => Error::NoSlot { on },
        Some(EPERM | EACCES) => Error::BreakpointDenied,
        Some(ESRCH) => Error::NoSuchThread,
        Some(ENODEV | ENOENT | EOPNOTSUPP) => Error::NoBreakpoints,
        Some(EINVAL) => Error::BadBreakpoint { address, len },
        _ => Error::Io {
            what: format!("cannot watch {address:#x}"),
            source,
        },
    }
}
