//! `tiptoe probe`, and what all instruments share: target, output, report and exit status.

use std::process::ExitCode;
use std::sync::Arc;

use tiptoe_collector::{CallOptions, Outcome, Request, RequestTarget, RunOptions};
use tiptoe_event::{Event, ProbeSpec, SpecFault, Via};
use tiptoe_report::Options;
use tiptoe_session::Session;

use crate::args::{Common, ProbeArgs};
use crate::failure::{FAILED, Failure, TargetOf};
use crate::interrupt;
use crate::latency;
use crate::notice::Notice;
use crate::observer::Terminal;
use crate::other_command;
use crate::output::{NotesTo, Output};
use crate::processes;
use crate::ready::{self, ReadyLine};
use crate::status::{self, RunDescription};
use crate::terminal;

/// Fails for `--via kernel-task`, because only watchpoints can be opened for each thread.
pub fn refuse_of_threads(via: Via) -> Result<(), Failure> {
    match via {
        Via::KernelTask => Err(Failure::ViaKernelTask),
        _ => Ok(()),
    }
}

pub fn refuse_force(is_forced: bool, via: Via) -> Result<(), Failure> {
    match is_forced && via == Via::Kernel {
        true => Err(Failure::ForceWith("--via kernel")),
        false => Ok(()),
    }
}

/// What an instrument needs besides its request.
pub struct InstrumentRun {
    output: Output,
    notes: NotesTo,
    pub observer: Terminal,
}

impl InstrumentRun {
    /// Opens the output, handles signals, and shows the status. Also returns a request without events. `noun` is
    /// what is counted. With `has_values`, the report contains the program's values.
    pub fn begin(
        target: &RequestTarget,
        common: &Common,
        noun: &'static str,
        has_values: bool,
    ) -> Result<(InstrumentRun, Request<'static>), Failure> {
        let output = Output::chosen(common.output.as_deref(), target, has_values)?;
        let notes = output.notes_to(target);
        let (stop, hand_on) = interrupt::on_signals(target, notes)?;
        let description = RunDescription::new(target, noun, common);
        status::begin(description, target, &output);
        let ready_line = ReadyLine::for_output(&output, target, common.json);
        let ready = ready::ready(common.ready_fd, ready_line)?;
        let observer = Terminal::new(&output, notes, common.json, Arc::clone(&stop))?;
        let options = RunOptions {
            delay: common.delay,
            duration: common.duration,
            interval: common.interval,
            stop,
            hand_on,
            ready,
        };
        let run = InstrumentRun {
            output,
            notes,
            observer,
        };
        let request = Request {
            via: common.via,
            budget: common.limit(),
            ..request(target.clone(), options)
        };
        Ok((run, request))
    }

    /// Prints the session. Returns the exit status.
    pub fn finish(self, mut outcome: Outcome, common: &Common, extras: ReportExtras) -> ExitCode {
        let unsaid = interrupt::unsaid(self.notes);
        outcome.session.notes.extend(unsaid);
        print_outcome(outcome, self.output, common, extras)
    }
}

pub fn request(target: RequestTarget, options: RunOptions) -> Request<'static> {
    Request {
        agent: tiptoe_image::AGENT,
        target,
        options,
        ..Request::default()
    }
}

/// Returns the command's exit status if one was started.
pub fn run(args: ProbeArgs) -> Result<ExitCode, Failure> {
    let probes = args.specs.iter().map(|text| {
        processes::refuse_pid(text, "function", &args.common.pids)?;
        other_command::refuse(text, "probe")?;
        parse(text)
    });
    let probes = probes.collect::<Result<Vec<_>, _>>()?;
    let under = latency::check(&args, &probes)?;
    let common = &args.common;
    refuse_of_threads(common.via)?;
    refuse_force(args.force, common.via)?;
    let target = target(common, TargetOf::Functions)?;
    let has_values = args.record || latency::has_arguments(args.by);
    let (mut run, request) = InstrumentRun::begin(&target, common, "hit", has_values)?;
    let request = Request {
        events: probes.into_iter().map(Event::Probe).collect(),
        split: args.by.map(latency::by),
        calls: CallOptions {
            filter: args.filter,
            under,
            latency: args.timing.latency,
            slower_ns: args.timing.slower,
            record: args.record,
        },
        force: args.force,
        ..request
    };
    if let Some(times) = args.toggles {
        let toggled = tiptoe_collector::toggle(&request, times)?;
        terminal::say(Notice::Toggled(toggled));
        return Ok(ExitCode::SUCCESS);
    }
    let mut outcome = tiptoe_collector::run(&request, &mut run.observer)?;
    let above = |budget| tiptoe_report::above_budget(&outcome.session, budget);
    let above = common.limit().share().and_then(above);
    outcome.session.notes.extend(above);
    let extras = ReportExtras {
        has_calls: args.record,
        has_histograms: args.timing.histograms,
    };
    Ok(run.finish(outcome, common, extras))
}

/// Must run before the command is started.
fn parse(text: &str) -> Result<ProbeSpec<'_>, Failure> {
    ProbeSpec::parse(text).map_err(|error| match error.fault {
        SpecFault::NotAProbe(kind) => Failure::NoSuchKind(kind),
        SpecFault::NoSuchOption => {
            let option = text[error.at..].split([',', '=', '/']).next();
            Failure::NoSuchOption(option.unwrap_or_default().to_owned())
        }
        _ => Failure::BadSpec {
            text: text.to_owned(),
            error,
        },
    })
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
    /// Whether lines of calls precede the report.
    pub has_calls: bool,
    pub has_histograms: bool,
}

pub fn print_outcome(
    outcome: Outcome,
    output: Output,
    common: &Common,
    extras: ReportExtras,
) -> ExitCode {
    let report = rendered(outcome.session, &output, common, extras);
    let written = report.and_then(|report| output.write(&report));
    exit_code(outcome.exit_status, written)
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

/// Returns the command's status, or [`FAILED`] if that is 0 and the report was lost.
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
    fn specs_are_checked_before_anything_starts() {
        for spec in ["redis-server:dict*", "uprobe:ns::f+0x10", "uretprobe:f"] {
            assert!(parse(spec).is_ok(), "{spec}");
        }
        for (spec, said) in [
            ("prog:", "a function is missing (at character 6)"),
            ("usdt:a:b", "'usdt:' is not implemented yet"),
            ("f/latency/", "'latency' is not implemented yet"),
        ] {
            let failure = parse(spec).expect_err(spec);
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }

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
