//! What is asked of each process.

use std::sync::atomic::{AtomicBool, Ordering};

use tiptoe_event::{Filter, Via};
use tiptoe_wire::Clock;

use super::budget;
use crate::clock;
use crate::link::Terms;
use crate::planner::Follow;
use crate::request::{By, Error, Request};

/// What all processes of a run share.
pub struct Plan<'a> {
    /// The agent's bytes.
    pub agent: &'static [u8],
    /// The events.
    pub specs: &'a [String],
    /// Which hits count.
    pub filter: Option<Filter>,
    /// Who counts.
    pub via: Via,
    /// What counts are split by.
    pub by: Option<By>,
    /// Patch against the rules.
    pub force: bool,
    /// Calls are timed: how.
    pub calls: Option<Timing>,
    /// What following them may cost.
    pub share: Share,
    /// Set where the user wants it to end.
    pub stop: &'a AtomicBool,
}

/// How calls are timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Calls that took less are counted only.
    pub slower_ns: u64,
}

/// What followed calls may cost, as a part of the target's CPU time; `None`: anything.
type Share = Option<f64>;

impl<'a> Plan<'a> {
    /// What a request asks for.
    pub fn of(request: &'a Request) -> Plan<'a> {
        let timing = || Timing {
            slower_ns: request.slower_ns.unwrap_or(0),
        };
        Plan {
            agent: request.agent,
            specs: &request.specs,
            filter: request.filter,
            via: request.via,
            by: request.by,
            force: request.force,
            calls: request.latency.then(timing),
            share: request.budget.share(),
            stop: &request.stop,
        }
    }

    /// What is wanted of each hit, at most.
    pub fn follow(&self) -> Follow {
        let returns = || self.specs.iter().any(|spec| spec.starts_with("uretprobe:"));
        match self.calls {
            Some(_) => Follow::Times,
            None if returns() => Follow::Returns,
            None => Follow::No,
        }
    }

    /// What an agent is told before it begins.
    pub fn terms(&self) -> Terms {
        Terms {
            keep_slabs: self.by == Some(By::Thread),
            clock: Clock {
                credit: self.share.map_or(budget::ANY, |_| budget::FIRST),
                ns_per_tick: self.calls.map_or(0, |_| clock::ns_per_tick()),
                slower_ns: self.calls.map_or(0, |calls| calls.slower_ns),
            },
        }
    }

    /// An error where the user ended it before the command began, which then never does.
    pub fn go_on(&self) -> Result<(), Error> {
        // Relaxed: the flag is all that is told.
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::new("interrupted before the command began")),
            false => Ok(()),
        }
    }
}
