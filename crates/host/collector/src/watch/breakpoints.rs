//! A watch's breakpoints have three forms. The kernel sets them on all CPUs, or on each thread (`in_kernel`), or the
//! program's threads set their own (`inside`).

use std::time::Duration;

use tiptoe_event::{Cost, Via};
use tiptoe_kernel::watchpoints::{
    Access, AttachSummary, Drops, Hits, Stats, WatchHits, Watchpoint, Window,
};
use tiptoe_session::{EndCause, Placement, Reservations};

use super::begin::Target;
use super::variables::WatchedVariable;
use crate::drive::Targets;
use crate::error::{Error, Reason};

/// A form of breakpoints. `at` is the process, and `target` its memory.
pub(super) trait Breakpoints {
    /// Returns how many hits the budget allows in a window (a period of the budget); `None` without a budget.
    fn allowance(&mut self) -> Option<u64>;

    /// Supplies the decoded store instructions and the unwind rules that the first hits need.
    fn supply_initial_rules(
        &mut self,
        target: &Target,
        variables: &[WatchedVariable],
    ) -> Result<(), Error>;

    fn start(&mut self, at: &Targets, target: &Target) -> Result<(), Error>;

    /// Reads data that would be lost later, and learns about the code that caused hits. Returns the longest time
    /// until the next poll.
    fn poll(&mut self, at: &Targets, target: &mut Target, now: Duration)
    -> Result<Duration, Error>;

    /// Begins the next window. Returns the previous window's result.
    fn refresh(&mut self, at: &Targets) -> Result<Window, Error>;

    fn window(&mut self, at: &Targets) -> Result<Window, Error>;

    /// Makes a slot (debug register) watch another variable or another address. Returns the result of the window so
    /// far.
    fn serve(
        &mut self,
        slot: usize,
        index: usize,
        point: &Watchpoint,
        at: &Targets,
        target: &Target,
    ) -> Result<Window, Error>;

    fn forget(&mut self, _address: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Moves breakpoints from all CPUs to the process's threads. Returns the reason if the breakpoints must stay. On
    /// an error, nothing is watched.
    fn move_to_threads(&mut self) -> Result<Result<(), Reason>, Error> {
        Ok(Ok(()))
    }

    fn take_accesses(&mut self) -> Vec<Access>;

    fn hits(&mut self, variable: u32) -> Result<Hits, Error>;

    fn hit_cost(&mut self) -> Result<Cost, Error>;

    fn ended_by(&mut self, at: &Targets) -> Option<EndCause>;

    /// Returns whether all of the program's threads have ended, although the process still exists.
    fn is_over(&mut self, _at: &Targets) -> bool {
        false
    }

    /// The counts remain readable.
    fn stop(&mut self, at: &Targets, target: &mut Target);

    fn reservations(&mut self, at: &Targets) -> Result<Vec<Reservations>, Error>;

    fn report(&mut self, at: &Targets) -> Result<BreakpointReport, Error>;
}

pub(super) struct BreakpointReport {
    pub(super) via: Via,
    pub(super) form: Placement,
    pub(super) rows: Vec<WatchHits>,
    pub(super) drops: Drops,
    /// The numbers of lost hits, of late hits, and of traps that no breakpoint explains.
    pub(super) missed: [u64; 3],
    /// How often the agent's breakpoints were closed while other threads ran.
    pub(super) gaps: u64,
    /// How many threads' reservations of debug registers were refused.
    pub(super) refused: u64,
    pub(super) foreign: u64,
    pub(super) sees_kernel: bool,
}

pub(super) fn placement(by: &str, attached: Option<AttachSummary>) -> Placement {
    Placement {
        by: by.to_owned(),
        why: None,
        attached: attached.map(|attached| tiptoe_session::Attachment {
            threads: attached.threads,
            again: attached.again,
            late: attached.late,
            without: attached.without,
            took_ns: attached.took.as_nanos() as u64,
        }),
    }
}

/// Returns the reservations for threads and for CPUs. Threads also used `unreserved` registers without a reservation.
pub(super) fn reservations(sides: [Stats; 2], unreserved: u64) -> Vec<Reservations> {
    let reservations = [("thread", unreserved), ("cpu", 0)]
        .into_iter()
        .zip(sides)
        .map(|((side, unreserved), stats)| Reservations {
            side: side.to_owned(),
            reservations: stats.reservations,
            unreserved,
            holds: stats.holds,
            waited: stats.waited,
            waited_ns: stats.waited_ns,
        });
    reservations.collect()
}
