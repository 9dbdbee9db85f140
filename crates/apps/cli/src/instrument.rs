//! What instruments (subcommands) share: target, output, report and exit status.

use std::process::ExitCode;
use std::sync::Arc;

use tiptoe_collector::{Outcome, Request, RequestTarget, RunOptions};
use tiptoe_event::Via;
use tiptoe_report::Options;
use tiptoe_session::Session;

use crate::common::Common;
use crate::failure::{FAILED, Failure, TargetOf};
use crate::observer::Terminal;
use crate::output::{NotesTo, Output};
use crate::ready::{self, ReadyLine};
use crate::status::{self, RunDescription};
use crate::{interrupt, processes, target_names};

/// Fails for `--via kernel-task` (breakpoints of each thread), because only variables can be traced so. Also fails
/// for `--force` with `--via kernel`, because tiptoe's library then enters no process.
pub fn check_via(via: Via, is_forced: bool) -> Result<(), Failure> {
    match via {
        Via::KernelTask => Err(Failure::ViaKernelTask),
        Via::Kernel if is_forced => Err(Failure::ForceWith("--via kernel")),
        _ => Ok(()),
    }
}

/// Where an instrument's run prints its report, notes (limits of the result) and intervals.
pub struct InstrumentRun {
    output: Output,
    notes: NotesTo,
    pub observer: Terminal,
}

impl InstrumentRun {
    /// Opens the output, handles signals, and begins the status line. The returned request has no events yet.
    /// `noun` is what is counted. With `has_values`, the report contains the program's values.
    pub fn begin(
        target: &RequestTarget,
        common: &Common,
        noun: &'static str,
        has_values: bool,
    ) -> Result<(InstrumentRun, Request<'static>), Failure> {
        let output = Output::chosen(common.output.as_deref(), target, has_values)?;
        let notes = output.notes_to(target);
        let description = RunDescription {
            whom: target_names::one(target),
            noun,
            delay: common.delay,
            duration: common.duration,
            is_for_programs: common.json,
        };
        let ready_line = ReadyLine::for_output(&output, target, common.json);
        let options = RunOptions {
            interval: common.interval,
            ..begin(target, &output, description, common.ready_fd, ready_line)?
        };
        let observer = Terminal::new(&output, notes, common.json, Arc::clone(&options.stop))?;
        let run = InstrumentRun {
            output,
            notes,
            observer,
        };
        let request = Request {
            via: common.via,
            budget: common.limit(),
            exec: common.exec.clone(),
            ..request(target.clone(), options)
        };
        Ok((run, request))
    }

    pub fn finish(self, mut outcome: Outcome, common: &Common, extras: ReportExtras) -> ExitCode {
        outcome.session.notes.extend(interrupt::unsaid(self.notes));
        let report = rendered(outcome.session, &self.output, common, extras);
        let written = report.and_then(|report| self.output.write(&report));
        exit_code(outcome.exit_status, written)
    }
}

/// Returns the run's options; the caller must set the interval.
pub fn begin(
    target: &RequestTarget,
    output: &Output,
    description: RunDescription,
    ready_fd: Option<i32>,
    ready_line: ReadyLine,
) -> Result<RunOptions, Failure> {
    let signals = interrupt::on_signals(target, output.notes_to(target));
    let (stop, hand_on) = signals.map_err(Failure::NoSignals)?;
    let (delay, duration) = (description.delay, description.duration);
    status::begin(description, target, output);
    Ok(RunOptions {
        delay,
        duration,
        interval: None,
        stop,
        hand_on,
        ready: ready::ready(ready_fd, ready_line)?,
    })
}

pub fn given<const N: usize>(options: [(bool, &'static str); N]) -> Option<&'static str> {
    let mut options = options.into_iter();
    options.find_map(|(is_given, option)| is_given.then_some(option))
}

pub fn request(target: RequestTarget, options: RunOptions) -> Request<'static> {
    Request {
        agent: tiptoe_image::AGENT,
        target,
        options,
        ..Request::default()
    }
}

pub fn target(common: &Common, of: TargetOf) -> Result<RequestTarget, Failure> {
    if common.all {
        return Err(Failure::WholeSystem(of));
    }
    if !common.command.is_empty() {
        return Ok(RequestTarget::Command(common.command.clone()));
    }
    if let Some(comm) = &common.comm {
        return processes::named(comm).map(RequestTarget::Pids);
    }
    match common.pids.as_slice() {
        [] => Err(Failure::NoTarget(of)),
        pids => Ok(RequestTarget::Pids(without_repeats(pids))),
    }
}

pub fn without_repeats(pids: &[u32]) -> Vec<u32> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    pids
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ReportExtras {
    pub has_calls: bool,
    pub has_histograms: bool,
}

pub fn rendered(
    session: Session,
    output: &Output,
    common: &Common,
    extras: ReportExtras,
) -> Result<String, Failure> {
    Ok(match common.json {
        true => tiptoe_report::json(session)?,
        false => {
            let options = Options {
                histograms: extras.has_histograms,
                all_notes: common.all_notes,
                ..output.options(common.top)
            };
            let report = tiptoe_report::text(&session, &options);
            if extras.has_calls {
                format!("\n{report}")
            } else {
                report
            }
        }
    })
}

/// Returns the command's exit status, or [`FAILED`] if that status is 0 and the report could not be written.
pub fn exit_code(of_command: Option<i32>, written: Result<(), Failure>) -> ExitCode {
    let lost = written.map_err(|failure| failure.report()).is_err();
    let own = of_command.unwrap_or(0);
    match u8::try_from(own) {
        Ok(0) if lost => ExitCode::from(FAILED),
        Ok(status) => ExitCode::from(status),
        Err(_) => ExitCode::from(u8::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_report_does_not_hide_the_commands_status() {
        let lost = || Err(Failure::NoCommand);
        assert_eq!(exit_code(None, Ok(())), ExitCode::SUCCESS);
        assert_eq!(exit_code(Some(143), Ok(())), ExitCode::from(143));
        assert_eq!(exit_code(Some(3), lost()), ExitCode::from(3));
        assert_eq!(exit_code(Some(0), lost()), ExitCode::from(FAILED));
        assert_eq!(exit_code(None, lost()), ExitCode::from(FAILED));
    }
}
