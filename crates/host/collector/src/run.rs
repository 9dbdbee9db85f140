//! Picks the instruments that a request's events need.
//!
//! | events | instrument |
//! |---|---|
//! | functions, locks of programs, scopes | `probes` |
//! | variables | `watch` |
//! | locks of the kernel | `locks` |
//! | counters without scopes | `stat`, which counts alone |
//!
//! Several instruments count in the same processes, with one agent and one segment.

use tiptoe_event::Event;

use crate::drive::Instrument;
use crate::error::Error;
use crate::locks::KernelLocks;
use crate::request::{Observer, Outcome, Request};
use crate::watch::RequestedWatch;
use crate::{locks, probes, stat, watch};

/// Runs a request until it ends. Fails if its events cannot count together, before anything is attached or started.
pub fn run(request: &Request<'_>, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let has = |is_it: fn(&Event<'_>) -> bool| request.events.iter().any(is_it);
    let in_program =
        has(|event| matches!(event, Event::Probe(_) | Event::UserLocks(_) | Event::Scopes));
    let has_variables = has(|event| matches!(event, Event::Memory(_)));
    let has_counters = has(|event| matches!(event, Event::Counters(_)));
    let twice =
        |is_it: fn(&Event<'_>) -> bool| request.events.iter().filter(|event| is_it(event)).nth(1);
    let locks = twice(|event| matches!(event, Event::UserLocks(_)));
    if locks
        .or(twice(|event| matches!(event, Event::KernelLocks(_))))
        .is_some()
    {
        return Err(Error::LocksTwice);
    }
    match (in_program, has_variables, request.kernel_locks()) {
        (false, false, None) => stat::stat(request, observer),
        _ if has_counters && !request.reports_scopes() => Err(Error::CountersWithOthers),
        (true, false, None) => probes::run(request, observer, |_| Ok(Vec::new())),
        (false, true, None) => watch::watch(request, observer),
        (false, false, Some(watched)) => locks::locks(request, watched, observer),
        _ => together(request, observer),
    }
}

fn together(request: &Request<'_>, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let variables = RequestedWatch::parse(request)?;
    if !variables.is_empty() {
        watch::may_be_beside(request)?;
    }
    let watched = request.kernel_locks();
    let waits = watched.map(|watched| KernelLocks::load(request, watched));
    let waits = waits.transpose()?;
    probes::run(request, observer, |at| {
        let mut others: Vec<Box<dyn Instrument + '_>> = Vec::new();
        if !variables.is_empty() {
            others.push(watch::beside(request, &variables, at)?);
        }
        if let Some(mut waits) = waits {
            waits.choose(at)?;
            others.push(Box::new(waits));
        }
        Ok(others)
    })
}
