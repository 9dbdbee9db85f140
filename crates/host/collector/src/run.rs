//! Picks the instruments (ways to count) that a request's events need.
//!
//! | events | instrument |
//! |---|---|
//! | functions, locks of programs, scopes | `probes` |
//! | variables | `watch` |
//! | locks of the kernel | `locks` |
//! | counters without scopes | `stat`, which counts alone |

use tiptoe_event::Event;

use crate::drive::Instrument;
use crate::error::Error;
use crate::locks::KernelLocks;
use crate::request::{Observer, Outcome, Request};
use crate::watch::RequestedWatch;
use crate::{locks, probes, stat, watch};

/// Runs a request until it ends. Fails if its events cannot be counted together, before anything is attached or
/// started.
pub fn run(request: &Request<'_>, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let count = |is_it: fn(&&Event<'_>) -> bool| request.events.iter().filter(is_it).count();
    let user_locks = count(|event| matches!(event, Event::UserLocks(_)));
    let kernel_locks = count(|event| matches!(event, Event::KernelLocks(_)));
    if user_locks.max(kernel_locks) > 1 {
        return Err(Error::LocksTwice);
    }
    let in_program =
        user_locks + count(|event| matches!(event, Event::Probe(_) | Event::Scopes)) > 0;
    let has_variables = count(|event| matches!(event, Event::Memory(_))) > 0;
    let has_counters = count(|event| matches!(event, Event::Counters(_))) > 0;
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
