//! `tiptoe probe`: how often functions run, and how long they take.

use std::process::ExitCode;

use tiptoe_collector::{CallOptions, Request};
use tiptoe_event::{Event, ProbeSpec, SpecFault};

use crate::failure::{Failure, TargetOf};
use crate::instrument::{self, InstrumentRun, ReportExtras};
use crate::notice::Notice;
use crate::{other_command, processes, terminal};

pub mod args;
mod checks;

use args::ProbeArgs;

pub fn run(args: ProbeArgs) -> Result<ExitCode, Failure> {
    let probes = args.specs.iter().map(|text| {
        processes::refuse_pid(text, "function", &args.common.pids)?;
        other_command::refuse(text, "probe")?;
        parse(text)
    });
    let probes = probes.collect::<Result<Vec<_>, _>>()?;
    let under = checks::check(&args, &probes)?;
    let common = &args.common;
    instrument::check_via(common.via, args.force)?;
    let target = instrument::target(common, TargetOf::Functions)?;
    let has_values = args.record || checks::has_arguments(args.by);
    let (mut run, request) = InstrumentRun::begin(&target, common, "hit", has_values)?;
    let request = Request {
        events: probes.into_iter().map(Event::Probe).collect(),
        split: args.by.map(checks::by),
        calls: CallOptions {
            filter: args.filter,
            under,
            latency: args.latency,
            slower_ns: args.slower,
            record: args.record,
            ..CallOptions::default()
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
        has_histograms: args.histograms,
    };
    Ok(run.finish(outcome, common, extras))
}

/// Parses a spec (the user's words for events). Must run before the command starts, so that a bad spec starts
/// nothing.
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
}
