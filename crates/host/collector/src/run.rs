//! Picks the instrument that a request's events need.

use tiptoe_event::Event;

use crate::error::Error;
use crate::request::{Observer, Outcome, Request};
use crate::{locks, probes, stat, watch};

/// Runs a request until it ends.
pub fn run(request: &Request<'_>, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    let is_counted = |event: &Event<'_>| matches!(event, Event::Counters(_));
    if let Some(watched) = request.kernel_locks() {
        locks::locks(request, watched, observer)
    } else if request.variables().next().is_some() {
        watch::watch(request, observer)
    } else if request.events.iter().all(is_counted) {
        stat::stat(request, observer)
    } else {
        probes::run(request, observer)
    }
}
