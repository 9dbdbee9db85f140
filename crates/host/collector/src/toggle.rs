//! Shows that the patcher is safe.

use std::sync::atomic::Ordering;

use tiptoe_attach::phase::Phase;
use tiptoe_event::Via;

use crate::module::Cache;
use crate::request::{Error, Request, RequestTarget};
use crate::start::attach_all;
use crate::tracee::Plan;

/// Attaches to one running process, removes its probes and writes
/// them again `times` times while it runs, and detaches. Returns how often, which is less than
/// `times` if the request's `stop` was set.
pub fn toggle(request: &Request, times: u64) -> Result<u64, Error> {
    let RequestTarget::Pids(pids) = &request.target else {
        return Err(Error::new("toggling needs a running process"));
    };
    let plan = Plan {
        via: Via::Agent,
        by: None,
        ..Plan::of(request)
    };
    let tracees = attach_all(request, pids, &plan, &mut Cache::default())?;
    Phase::Counting.begin();
    // Relaxed: the flag orders no other data.
    let stop = || request.options.stop.load(Ordering::Relaxed);
    let toggled = tracees
        .iter()
        .map(|tracee| tracee.toggle(times, stop))
        .sum();
    Phase::Ending.begin();
    for tracee in &tracees {
        tracee.detach()?;
    }
    toggled
}
