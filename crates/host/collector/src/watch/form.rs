//! Where the breakpoints of a watch are: on all CPUs, or at the threads of the process.
//!
//! On all CPUs is the better form: it sees threads that begin later without any inheritance, and adds nothing to a
//! switch between threads. The other one is for those who may not have it, and for addresses that other processes use,
//! too, as each of their hits would cost them a trap.

use tiptoe_event::Via;
use tiptoe_kernel::watchpoints::{Form, WatchWanted, Watchpoint};
use tiptoe_kernel::{Error as KernelError, Watchpoints};
use tiptoe_session::{Attached, Placement, Reservations};
use tiptoe_sys::host::Process;

use super::begin::Target;
use super::holders;
use crate::request::Error;

/// Where, and why not on all CPUs.
pub(super) struct Chosen {
    pub(super) form: Form,
    why: Option<String>,
    attached: Option<tiptoe_kernel::watchpoints::Attached>,
}

/// Opens a watch in the form that is asked for, or the better one of those that can be had.
pub(super) fn open(
    wanted: WatchWanted,
    points: &[Watchpoint],
    serving: &[usize],
    via: Via,
    target: &Target,
) -> Result<(Watchpoints, Chosen), Error> {
    let in_form = |form| {
        let wanted = WatchWanted {
            form,
            ..wanted.clone()
        };
        Watchpoints::open(&wanted, points, serving)
    };
    let why = match via {
        Via::KernelTask => None,
        _ => {
            let shared = match via {
                Via::Auto => sharing(target, points),
                _ => 0,
            };
            if shared > 0 {
                let (processes, have) = match shared {
                    1 => ("process", "has"),
                    _ => ("processes", "have"),
                };
                Some(format!(
                    "{shared} other {processes} {have} the same addresses"
                ))
            } else {
                let chosen = Chosen {
                    form: Form::Wide,
                    why: None,
                    attached: None,
                };
                match in_form(Form::Wide) {
                    Ok(set) => return Ok((set, chosen)),
                    Err(error) if via == Via::Auto && may_be_had_otherwise(&error) => {
                        Some(error.to_string())
                    }
                    Err(error) => return Err(holders::explain(error)),
                }
            }
        }
    };
    let set = in_form(Form::Tasks).map_err(holders::explain)?;
    let chosen = Chosen {
        form: Form::Tasks,
        why,
        attached: set.attached(),
    };
    Ok((set, chosen))
}

/// Whether threads may have what CPUs have not.
fn may_be_had_otherwise(error: &KernelError) -> bool {
    matches!(
        error,
        KernelError::NoSlot { .. } | KernelError::BreakpointDenied
    )
}

/// How many other processes run the same program at the same place, with something mapped at one of these addresses.
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

impl Chosen {
    /// As it stands in a session.
    pub(super) fn told(&self) -> Placement {
        Placement {
            by: match self.form {
                Form::Wide => "cpu",
                Form::Tasks => "thread",
            }
            .to_owned(),
            why: self.why.clone(),
            attached: self.attached.map(|attached| Attached {
                threads: attached.threads,
                again: attached.again,
                without: attached.without,
                took_ns: attached.took.as_nanos() as u64,
            }),
        }
    }
}

/// What the accounting of debug registers tells.
pub(super) fn reservations(set: &Watchpoints) -> Result<Vec<Reservations>, Error> {
    let sides = set.reservations()?;
    let told = ["thread", "cpu"]
        .into_iter()
        .zip(sides)
        .map(|(side, stats)| Reservations {
            side: side.to_owned(),
            reservations: stats.reservations,
            holds: stats.holds,
            waited: stats.waited,
            waited_ns: stats.waited_ns,
        });
    Ok(told.collect())
}
