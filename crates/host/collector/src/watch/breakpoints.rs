//! The breakpoints of a watch, in one of three forms: the kernel's of all CPUs or of threads
//! ([`in_kernel`](super::in_kernel)), or those of the program's own threads
//! ([`inside`](super::inside)).

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

/// The form after a move, if another one; or why the watch stays as it is.
pub(super) type Moved = Result<Option<Box<dyn Breakpoints>>, Reason>;

/// One form of breakpoints. `at` is the process, `target` its memory.
pub(super) trait Breakpoints {
    /// Returns the number of hits that a window allows, if the budget limits it.
    fn allowance(&mut self) -> Option<u64>;

    /// Supplies the stores and unwind rules that are needed before the first hit: see [`super::initial_rules`].
    fn supply_initial_rules(
        &mut self,
        target: &Target,
        variables: &[WatchedVariable],
    ) -> Result<(), Error>;

    fn start(&mut self, at: &Targets, target: &Target) -> Result<(), Error>;

    /// Reads what would be lost otherwise, and learns about the code that hit. Returns the time
    /// within which the next turn must follow.
    fn poll(&mut self, at: &Targets, target: &mut Target, now: Duration)
    -> Result<Duration, Error>;

    /// Begins the next window; returns the result of the last one.
    fn refresh(&mut self, at: &Targets) -> Result<Window, Error>;

    fn window(&mut self, at: &Targets) -> Result<Window, Error>;

    /// Makes a slot watch another variable, or the same one at another address. Returns the result
    /// of the window before.
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

    /// Watches only the process's threads from now on, if all CPUs were watched. Returns the new
    /// form, or why the old one continues. On failure nothing is watched.
    fn move_to_threads(&mut self) -> Result<Moved, Error> {
        Ok(Ok(None))
    }

    fn take_accesses(&mut self) -> Vec<Access>;

    fn hits(&mut self, variable: u32) -> Result<Hits, Error>;

    fn hit_cost(&mut self) -> Result<Cost, Error>;

    fn ended_by(&mut self, at: &Targets) -> Option<EndCause>;

    /// Returns whether the program's threads have all ended while its process still exists.
    fn is_over(&mut self, _at: &Targets) -> bool {
        false
    }

    /// Stops counting; the counts remain readable.
    fn stop(&mut self, at: &Targets, target: &mut Target);

    fn reservations(&mut self, at: &Targets) -> Result<Vec<Reservations>, Error>;

    fn report(&mut self, at: &Targets) -> Result<BreakpointReport, Error>;
}

pub(super) struct BreakpointReport {
    pub(super) via: Via,
    pub(super) form: Placement,
    pub(super) rows: Vec<WatchHits>,
    pub(super) drops: Drops,
    /// The numbers of hits that are not counted: lost hits, hits of threads that blocked the
    /// signal, hits in gaps without an agent, and traps without a cause.
    pub(super) missed: [u64; 4],
    /// The threads whose debug registers could not be accounted for.
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
            without: attached.without,
            took_ns: attached.took.as_nanos() as u64,
        }),
    }
}

/// Threads held `unreserved` registers without a reservation.
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
