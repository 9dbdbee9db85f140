//! Runs a request: attaches or starts, watches, detaches.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use tiptoe_attach::phase::Phase;
use tiptoe_event::Via;
use tiptoe_price::own::OwnUse;
use tiptoe_session::ProcessNote;

use crate::drive::{session_target, wait_for_end};
use crate::module::Cache;
use crate::probes::Run;
use crate::request::{Error, Observer, Outcome, Request, RequestTarget};
use crate::resolve;
use crate::start::{attach_all, start};
use crate::tracee::{Plan, Tracee};
use crate::words::processes;

/// Runs a request until it ends.
pub fn run(request: Request, observer: &mut dyn Observer) -> Result<Outcome, Error> {
    for spec in &request.specs {
        resolve::parse(spec)?;
    }
    let own = OwnUse::begin();
    let plan = Plan::of(&request);
    let started_at = SystemTime::now();
    let mut cache = Cache::default();
    let tracees = match &request.target {
        RequestTarget::Pids(pids) => attach_all(&request, pids, &plan, &mut cache)?,
        RequestTarget::Command(command) => vec![start(command, &plan, &mut cache)?],
    };
    let broken_off = broken_off(&request, &tracees);
    let mut run = Run::new((&request, &plan), (tracees, cache), started_at);
    run.note_waiting(observer);
    let looped = match &broken_off {
        Some(note) => {
            run.session.notes.push(note.clone().into());
            Ok(())
        }
        None => run.watch(observer),
    };
    Phase::Ending.begin();
    let looped = looped.and_then(|()| run.report_last_scopes(observer));
    let counted = run.stop();
    run.look_for_foreign();
    let went = run.tracees.iter().filter_map(Tracee::came_and_went);
    run.session.notes.extend(went);
    let missed = run.tracees.iter().filter_map(Tracee::missed);
    run.session.notes.extend(missed);
    run.report_calls(observer);
    run.all_ended(observer);
    run.look_for_ends(observer);
    // All agents must be asked to detach, even if one does not answer.
    let detached: Vec<Result<(), Error>> = run.tracees.iter().map(Tracee::detach).collect();
    run.tracees.iter_mut().for_each(Tracee::close_probes);
    looped?;
    run.finish(&counted?);
    for (tracee, detached) in run.tracees.iter().zip(detached) {
        if let Err(error) = detached {
            let (process, why) = (session_target(&tracee.target), error.to_string());
            let note = ProcessNote::NotDetached { process, why };
            run.session.notes.push(note.into());
        }
    }
    let targets = run.tracees.iter_mut().map(|tracee| &mut tracee.target);
    let notes = &mut run.session.notes;
    let exit_status = wait_for_end(targets, &request.options.hand_on, observer, notes);
    run.end_waiting()?;
    let signal = broken_off.map(|_| 128 + signal_of(&request));
    own.report(&mut run.session);
    Ok(Outcome {
        session: run.session,
        exit_status: exit_status.or(signal),
    })
}

/// Returns the signal that interrupted the attach.
fn signal_of(request: &Request) -> i32 {
    // Relaxed: the number orders no other data.
    request.options.hand_on.load(Ordering::Relaxed) as i32
}

/// Returns a note if a signal interrupted attaching to running processes: the processes that are
/// attached are then reported at once.
fn broken_off(request: &Request, tracees: &[Tracee]) -> Option<ProcessNote> {
    let RequestTarget::Pids(pids) = &request.target else {
        return None;
    };
    let is_whole = tracees.len() == pids.len() && !tracees.iter().any(Tracee::is_partial);
    if is_whole {
        return None;
    }
    Some(ProcessNote::BrokenOff {
        signal: signal_of(request),
        attached: tracees.len() as u64,
        missing: processes(&pids[tracees.len()..]).collect(),
    })
}

/// Shows that the patcher is safe: attaches to one running process, removes its probes and writes
/// them again `times` times while it runs, and detaches. Returns how often, which is less than
/// `times` if `request.options.stop` was set.
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
