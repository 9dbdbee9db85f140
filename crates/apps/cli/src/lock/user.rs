//! `tiptoe lock`: the locks of programs.

use std::process::ExitCode;

use tiptoe_collector::{Request, RequestTarget};
use tiptoe_event::{Event, UserLocks};
use tiptoe_session::{LockNote, Note, Session};

use crate::failure::{Failure, TargetOf};
use crate::instrument::{self, InstrumentRun, ReportExtras};
use crate::lock::{LockArgs, LockByWord};
use crate::output::Output;

pub(super) fn run(args: LockArgs) -> Result<ExitCode, Failure> {
    let common = args.common;
    if common.interval.is_some() {
        return Err(Failure::LockIntervals);
    }
    let by = args.by.unwrap_or(LockByWord::Lock).split(args.kernel)?;
    let target = instrument::target(&common, TargetOf::Locks)?;
    let (mut run, request) = InstrumentRun::begin(&target, &common, "wait", false)?;
    let held = args.hold.as_deref();
    let request = Request {
        events: vec![Event::UserLocks(UserLocks { held })],
        split: Some(by),
        force: args.force,
        ..request
    };
    let mut outcome = tiptoe_collector::run(&request, &mut run.observer)?;
    if common.budget.is_some_and(|budget| budget.share().is_some()) {
        let ignored = ignored_budget(&outcome.session);
        outcome.session.notes.extend(ignored);
    }
    let extras = ReportExtras {
        has_histograms: args.histograms,
        ..ReportExtras::default()
    };
    Ok(run.finish(outcome, &common, extras))
}

/// Returns the note (a sentence of the report) that `--budget` has no effect on a process that tiptoe's library
/// could not enter. The kernel reports that process's waits.
fn ignored_budget(session: &Session) -> Option<Note> {
    let is_in_kernel = |note: &Note| matches!(note, Note::Lock(LockNote::InKernel { .. }));
    let mut notes = session.notes.iter();
    notes.any(is_in_kernel).then(|| LockNote::NoBudget.into())
}

pub(super) fn now(args: &LockArgs) -> Result<ExitCode, Failure> {
    let common = &args.common;
    let target = instrument::target(common, TargetOf::Locks)?;
    let RequestTarget::Pids(pids) = &target else {
        return Err(Failure::NowOfCommand);
    };
    let output = Output::chosen(common.output.as_deref(), &target, false)?;
    let mut reports = Vec::new();
    for pid in pids {
        let session = tiptoe_collector::lock_waits_now(*pid)?;
        let report = instrument::rendered(session, &output, common, ReportExtras::default())?;
        reports.push(report);
    }
    // Text reports need an empty line between them.
    output.write(&reports.join(if common.json { "" } else { "\n" }))?;
    Ok(ExitCode::SUCCESS)
}
