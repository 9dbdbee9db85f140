//! Chooses where the kernel's breakpoints are: on all CPUs, or on the threads of the process. All CPUs are better,
//! because later threads need not inherit breakpoints, and context switches stay fast. Threads are for users who may
//! not watch all CPUs, and for addresses at which the accesses of other processes would trap.

use tiptoe_event::Via;
use tiptoe_kernel::watchpoints::{Form, WatchWanted, Watchpoint};
use tiptoe_kernel::{Error as KernelError, Watchpoints};
use tiptoe_sys::host::Process;

use super::begin::Target;
use super::breakpoints::Breakpoints;
use super::holders;
use super::in_kernel::KernelBreakpoints;
use crate::error::{Error, Reason};

pub(super) fn is_denied(error: &Error) -> bool {
    matches!(
        error,
        Error::Kernel(
            KernelError::BpfDenied
                | KernelError::BpfRejected { .. }
                | KernelError::BreakpointDenied
        )
    )
}

/// The breakpoints, and why they are not on all CPUs.
pub(super) type OpenedWatch = (Box<dyn Breakpoints>, Option<Reason>);

pub(super) fn open(
    wanted: WatchWanted,
    points: &[Watchpoint],
    serving: &[usize],
    via: Via,
    target: &Target,
) -> Result<OpenedWatch, Error> {
    let in_form = |form| -> Result<Box<dyn Breakpoints>, KernelError> {
        let wanted = WatchWanted {
            form,
            ..wanted.clone()
        };
        let set = Watchpoints::open(&wanted, points, serving)?;
        Ok(Box::new(KernelBreakpoints::new(set)))
    };
    let shared = match via {
        Via::Auto => sharing(target, points),
        _ => 0,
    };
    let why = match via {
        Via::KernelTask => None,
        _ if shared > 0 => Some(Reason::SharedAddresses { count: shared }),
        _ => match in_form(Form::Cpus) {
            Ok(kernel) => return Ok((kernel, None)),
            Err(error @ KernelError::NoHitLimit) => Some(Error::from(error).into()),
            Err(error) if via == Via::Auto && may_be_had_otherwise(&error) => {
                Some(Error::from(error).into())
            }
            Err(error) => return Err(holders::explain(error)),
        },
    };
    let threads = in_form(Form::Tasks).map_err(holders::explain)?;
    Ok((threads, why))
}

fn may_be_had_otherwise(error: &KernelError) -> bool {
    matches!(
        error,
        KernelError::NoSlot { .. } | KernelError::HeldByOthers(_) | KernelError::BreakpointDenied
    )
}

/// Returns how many other processes run the same program at the same base, with memory at one of these addresses.
fn sharing(target: &Target, points: &[Watchpoint]) -> usize {
    let own = target.process;
    let Ok(exe) = own.exe() else { return 0 };
    let Some(start) = target.names.maps.first().map(|first| first.start) else {
        return 0;
    };
    let shares = |other: &Process| {
        let is_same = other.pid() != own.pid() && other.exe().is_ok_and(|found| found == exe);
        is_same
            && other.maps().is_ok_and(|maps| {
                let is_placed = maps.first().is_some_and(|first| first.start == start);
                let mut addresses = points.iter().map(|point| point.at.address);
                is_placed && addresses.any(|at| maps.iter().any(|mapping| mapping.contains(at)))
            })
    };
    let all = Process::all().unwrap_or_default();
    all.into_iter().filter(|other| shares(other)).count()
}
