//! `tiptoe stat --by scope`: counts for each scope that a program enters.
//!
//! The driver of probes counts them, because only an agent in the program sees its scopes.

use std::process::ExitCode;
use std::sync::Arc;

use tiptoe_collector::{Budget, Request, RequestTarget};
use tiptoe_event::Via;
use tiptoe_report::Options;

use super::StatArgs;
use crate::counters;
use crate::failure::Failure;
use crate::interrupt;
use crate::observer::Terminal;
use crate::output::Output;
use crate::probe;
use crate::ready::{self, Talk};
use crate::status::{self, About};

/// The events without `-e`.
const DEFAULT: &str = "context-switches,page-faults";

const NO_TARGET_HINT: &str = "-p PID or -- CMD chooses whose scopes";

pub(super) fn run(args: StatArgs) -> Result<ExitCode, Failure> {
    check(&args)?;
    let target = match (args.pids.is_empty(), args.command.is_empty()) {
        (true, true) => return Err(Failure::new("no process to count").hint(NO_TARGET_HINT)),
        (true, false) => RequestTarget::Command(args.command),
        (false, _) => {
            let mut pids = args.pids;
            pids.sort_unstable();
            pids.dedup();
            RequestTarget::Pids(pids)
        }
    };
    let output = match (&args.output, &target) {
        (Some(path), _) if path.as_os_str() == "-" => Output::Stdout,
        (Some(path), _) => Output::file(path, false)?,
        (None, RequestTarget::Command(_)) => Output::Stderr,
        (None, RequestTarget::Pids(_)) => Output::Stdout,
    };
    let events = match args.events.is_empty() {
        true => vec![DEFAULT.to_owned()],
        false => args.events,
    };
    // Checked here because this error has a hint with the nearest names; the driver parses again.
    counters::groups(&events)?;
    let notes = output.notes_to(&target);
    let (stop, hand_on) = interrupt::on_signals(&target, notes)?;
    let about = About {
        whom: ready::whom(&target),
        noun: "scope",
        delay: None,
        duration: args.duration,
        is_for_programs: args.json,
    };
    status::begin(about, &target, &output);
    let ready = ready::ready(args.ready_fd, Talk::beside(&output, &target, args.json))?;
    let mut observer = Terminal::new(&output, notes, args.json, Arc::clone(&stop))?;
    let request = Request {
        agent: tiptoe_image::AGENT,
        specs: Vec::new(),
        filter: None,
        target,
        via: Via::Agent,
        by: None,
        latency: false,
        record: false,
        locks: None,
        hold: None,
        scopes: Some(events),
        slower_ns: None,
        under: None,
        duration: args.duration,
        delay: None,
        interval: None,
        budget: Budget::Off,
        force: false,
        stop,
        hand_on,
        ready,
    };
    let mut outcome = tiptoe_collector::run(request, &mut observer)?;
    outcome.session.notes.extend(interrupt::unsaid(notes));
    let report = match args.json {
        true => tiptoe_report::json(&outcome.session)
            .map_err(|error| Failure::new(format!("the session has no JSON form: {error}")))?,
        false => {
            let options = Options {
                all_notes: args.all_notes,
                ..output.options(None)
            };
            tiptoe_report::text(&outcome.session, &options)
        }
    };
    let written = output.write(&report);
    Ok(probe::exit_code(&outcome, written))
}

/// Fails for options about CPUs, cgroups, several runs or other forms, which scopes do not have.
fn check(args: &StatArgs) -> Result<(), Failure> {
    let others = [
        (args.all, "-a"),
        (!args.for_each_cgroup.is_empty(), "--for-each-cgroup"),
        (args.per_cpu, "--per-cpu"),
        (args.repeat.is_some(), "-r"),
        (
            args.interval
                .or(args.interval_ms.map(|_| Default::default()))
                .is_some(),
            "-I",
        ),
        (args.separator.is_some(), "-x"),
        (args.csv, "--csv"),
        (
            !args.pids.is_empty() && !args.command.is_empty(),
            "-p together with -- CMD",
        ),
    ];
    match others.into_iter().find(|(given, _)| *given) {
        Some((_, option)) => {
            let what =
                format!("{option} does not go with --by scope, which counts one program's threads");
            Err(Failure::new(what).hint(
                "leave it out; -p PID or -- CMD chooses the program, and --json is for scripts",
            ))
        }
        None => Ok(()),
    }
}
