//! `tiptoe probe`: a list of events for the driver, and the report of what came back.

use std::process::ExitCode;
use std::sync::Arc;

use tiptoe_collector::{Outcome, Request, RequestTarget};
use tiptoe_event::{Spec, Via};
use tiptoe_session::Session;

use crate::args::{Common, ProbeArgs};
use crate::failure::{FAILED, Failure};
use crate::interrupt::on_signals;
use crate::latency;
use crate::observer::Terminal;
use crate::output::Output;
use crate::processes;
use crate::ready::{self, Talk};
use crate::terminal;

/// The agent, as the build made it: `tiptoe` carries what it brings into targets.
pub const AGENT: &[u8] = include_bytes!(env!("TIPTOE_AGENT_SO"));

/// Whom, where nobody is named.
const TARGETS: &str = "-p PID, --comm NAME or -- CMD says whom to trace";

/// Breakpoints are the only thing that threads can have each for itself.
pub fn refuse_of_threads(via: Via) -> Result<(), Failure> {
    match via {
        Via::KernelTask => {
            let what = "--via kernel-task is of `tiptoe watch` alone";
            Err(Failure::new(what).hint("leave out --via"))
        }
        _ => Ok(()),
    }
}

/// Runs the instrument; the exit status is the command's own where one was started.
pub fn run(args: ProbeArgs) -> Result<ExitCode, Failure> {
    args.specs.iter().try_for_each(|spec| check(spec))?;
    latency::check(&args)?;
    let common = args.common;
    refuse_of_threads(common.via)?;
    let target = target(&common, TARGETS)?;
    let has_values = args.record || latency::has_arguments(args.by);
    let output = place(&common, &target, has_values)?;
    let (stop, hand_on) = on_signals(&target)?;
    let ready = ready::ready(common.ready_fd, Talk::beside(&output, common.json))?;
    let mut observer = Terminal::new(&output, common.json, Arc::clone(&stop))?;
    let request = Request {
        agent: AGENT,
        specs: args.specs,
        filter: args.filter,
        target,
        via: common.via,
        by: args.by.map(latency::by),
        latency: args.timing.latency,
        record: args.record,
        locks: None,
        scopes: None,
        hold: None,
        slower_ns: args.timing.slower,
        under: args.timing.under,
        duration: common.duration,
        delay: common.delay,
        interval: common.interval,
        budget: common.budget,
        force: args.force,
        stop,
        hand_on,
        ready,
    };
    if let Some(times) = args.toggles {
        let toggled = tiptoe_collector::toggle(&request, times)?;
        terminal::say(&format!("toggled {toggled} times"));
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = tiptoe_collector::run(request, &mut observer)?;
    Ok(end(&outcome, output, &common, args.record))
}

/// Whether a spec can be traced at all, before anything is started.
fn check(text: &str) -> Result<(), Failure> {
    const GRAMMAR: &str =
        "an event is [BINARY:]FUNCTION[+OFFSET], such as redis-server:dictFind or 'libc.so.6:mem*'";
    let spec = Spec::parse(text).map_err(|error| {
        Failure::new(format!("'{}': {error}", text.escape_debug())).hint(GRAMMAR)
    })?;
    if !spec.kind.is_probe() {
        return Err(Failure::not_yet(format!("'{}:'", spec.kind), GRAMMAR));
    }
    if let Some((option, _)) = spec.options.iter().next() {
        return Err(Failure::not_yet(
            format!("the event option '{option}'"),
            GRAMMAR,
        ));
    }
    Ok(())
}

/// Whom to trace, from the options; where nobody is named the hint says how.
pub fn target(common: &Common, hint: &str) -> Result<RequestTarget, Failure> {
    let reserved = [
        (common.all, "-a"),
        (common.cgroup.is_some(), "--cgroup"),
        (common.follow, "-f"),
    ];
    if let Some((_, option)) = reserved.into_iter().find(|(given, _)| *given) {
        return Err(Failure::not_yet(option, hint));
    }
    if !common.command.is_empty() {
        return Ok(RequestTarget::Command(common.command.clone()));
    }
    if let Some(comm) = &common.comm {
        return processes::named(comm).map(RequestTarget::Pids);
    }
    match common.pids.as_slice() {
        [] => Err(Failure::new("no process to trace").hint(hint)),
        pids => Ok(RequestTarget::Pids(without_repeats(pids))),
    }
}

fn without_repeats(pids: &[u32]) -> Vec<u32> {
    let mut pids = pids.to_vec();
    pids.sort_unstable();
    pids.dedup();
    pids
}

/// Where the report goes; `values` says that it will hold some of the program's, such as arguments.
pub fn place(common: &Common, target: &RequestTarget, values: bool) -> Result<Output, Failure> {
    match (&common.output, target) {
        (Some(path), _) if path.as_os_str() == "-" => Ok(Output::Stdout),
        (Some(path), _) => Output::file(path, values),
        (None, RequestTarget::Command(_)) => Ok(Output::Stderr),
        (None, RequestTarget::Pids(_)) => Ok(Output::Stdout),
    }
}

/// Prints what came back of a run; its exit status.
pub fn end(outcome: &Outcome, output: Output, common: &Common, record: bool) -> ExitCode {
    let written = report(&outcome.session, output, common, record);
    exit_code(outcome, written)
}

/// Prints a session.
pub fn report(
    session: &Session,
    output: Output,
    common: &Common,
    record: bool,
) -> Result<(), Failure> {
    let report = match common.json {
        true => tiptoe_report::json(session)
            .map_err(|error| Failure::new(format!("the session has no JSON form: {error}")))?,
        false => {
            let report = tiptoe_report::text(session, &output.options(common.top));
            // What is in front of it are recorded calls.
            if record {
                format!("\n{report}")
            } else {
                report
            }
        }
    };
    output.write(&report)
}

/// The command's own status comes first; a report that was lost is a failure of ours.
pub fn exit_code(outcome: &Outcome, written: Result<(), Failure>) -> ExitCode {
    let lost = written.map_err(|failure| failure.report()).is_err();
    let own = outcome.exit_status.unwrap_or(0);
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
            assert!(check(spec).is_ok(), "{spec}");
        }
        for (spec, said) in [
            ("prog:", "a function is missing (at character 6)"),
            ("mem:stats", "'mem:' is not implemented yet"),
            ("f/latency/", "'latency' is not implemented yet"),
        ] {
            let failure = check(spec).expect_err(spec);
            assert!(format!("{failure:?}").contains(said), "{failure:?}");
        }
    }

    #[test]
    fn the_commands_own_status_comes_first() {
        let outcome = |exit_status| Outcome {
            session: Session::default(),
            exit_status,
        };
        let lost = || Err(Failure::new("disk full"));
        assert_eq!(exit_code(&outcome(None), Ok(())), ExitCode::SUCCESS);
        assert_eq!(exit_code(&outcome(Some(143)), Ok(())), ExitCode::from(143));
        assert_eq!(exit_code(&outcome(Some(3)), lost()), ExitCode::from(3));
        assert_eq!(exit_code(&outcome(Some(0)), lost()), ExitCode::from(FAILED));
        assert_eq!(exit_code(&outcome(None), lost()), ExitCode::from(FAILED));
    }
}
