//! `tiptoe stat --by scope`: counts for each scope that a program enters.
//!
//! The driver of probes does the counting, because only an agent in the program sees its scopes.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tiptoe_collector::{Budget, Observer, Progress, Request, RequestTarget, RunOptions};
use tiptoe_event::Via;
use tiptoe_report::Options;
use tiptoe_session::{Call, Interval, Note, ScopeCounts, Session};

use super::{Form, StatArgs, report};
use crate::counters;
use crate::failure::Failure;
use crate::interrupt;
use crate::observer::LiveLines;
use crate::output::Output;
use crate::probe;
use crate::ready::{self, ReadyLine};
use crate::status::{self, RunDescription};

/// The events that are counted without `-e`.
const DEFAULT: &str = "context-switches,page-faults";

const NO_TARGET_HINT: &str = "-p PID or -- CMD chooses whose scopes";

pub(super) fn run(args: StatArgs) -> Result<ExitCode, Failure> {
    check(&args)?;
    let form = super::form(&args)?;
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
    // The driver parses the events again. They are checked here too, because this error has a hint with the nearest
    // names.
    counters::groups(&events)?;
    let (notes, comments_to) = (output.notes_to(&target), output.comments_to(&target));
    let (stop, hand_on) = interrupt::on_signals(&target, notes)?;
    let description = RunDescription {
        whom: ready::whom(&target),
        noun: "scope",
        delay: None,
        duration: args.duration,
        is_for_programs: form != Form::Text,
    };
    status::begin(description, &target, &output);
    let ready_line = match (&form, ReadyLine::for_output(&output, &target, args.json)) {
        (Form::Csv, ReadyLine::Plain) => ReadyLine::Comment,
        (_, ready_line) => ready_line,
    };
    let ready = ready::ready(args.ready_fd, ready_line)?;
    let options = Options {
        all_notes: args.all_notes,
        ..output.options(args.top)
    };
    let mut printer = ScopePrinter {
        lines: LiveLines::new(&output, notes, Arc::clone(&stop))?,
        options,
        form: form.clone(),
        has_heading: false,
    };
    let interval = args.interval_ms.map(|ms| Duration::from_millis(ms.into()));
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
        budget: Budget::Off,
        force: false,
        options: RunOptions {
            duration: args.duration,
            interval: interval.or(args.interval),
            stop,
            hand_on,
            ready,
            ..RunOptions::default()
        },
    };
    let mut outcome = tiptoe_collector::run(request, &mut printer)?;
    outcome.session.notes.extend(interrupt::unsaid(notes));
    let session = outcome.session;
    let written = match form {
        Form::Json => output.write(&report::json(session)?),
        Form::Csv => {
            let cost = tiptoe_report::cost_line(&session.cost);
            let comments = report::comments(&session, cost);
            report::write_with(output, csv(&session), &comments, comments_to)
        }
        Form::Text | Form::Fields(_) => output.write(&tiptoe_report::text(&session, &options)),
    };
    Ok(probe::exit_code(outcome.exit_status, written))
}

/// Returns the report as CSV. With intervals there is none, because each interval was already printed.
fn csv(session: &Session) -> String {
    match &session.scopes {
        Some(scopes) if scopes.intervals.is_some() => String::new(),
        _ => tiptoe_report::scopes_csv(session),
    }
}

/// The observer that prints the scopes of each interval to the output of the report.
struct ScopePrinter {
    lines: LiveLines,
    options: Options,
    form: Form,
    /// Whether the CSV's heading was printed, which must be only before the first interval.
    has_heading: bool,
}

impl ScopePrinter {
    fn lines_of(&mut self, counts: &ScopeCounts) -> io::Result<String> {
        Ok(match self.form {
            Form::Json => tiptoe_report::scope_counts_json(counts)?,
            Form::Csv => {
                let heading = match std::mem::replace(&mut self.has_heading, true) {
                    true => "",
                    false => tiptoe_report::scopes_csv_heading(),
                };
                heading.to_owned() + &tiptoe_report::scope_counts_csv(counts)
            }
            Form::Text | Form::Fields(_) => tiptoe_report::scope_counts(counts, &self.options),
        })
    }
}

impl Observer for ScopePrinter {
    fn interval(&mut self, _interval: &Interval) {}

    fn calls(&mut self, _calls: &[Call<'_>]) {}

    fn scopes(&mut self, scopes: &ScopeCounts) {
        let lines = self.lines_of(scopes);
        self.lines.write(lines);
    }

    fn wants_progress(&mut self) -> bool {
        status::wants_progress()
    }

    fn progress(&mut self, progress: &Progress) {
        status::put(progress);
    }

    fn note(&mut self, note: &Note) {
        self.lines.note(note);
    }
}

/// Fails for options that counts of scopes do not have: perf's output fields (`-x`), CPUs, cgroups, several runs, and
/// `-p` with a command.
fn check(args: &StatArgs) -> Result<(), Failure> {
    let others = [
        (args.all, "-a"),
        (!args.for_each_cgroup.is_empty(), "--for-each-cgroup"),
        (args.per_cpu, "--per-cpu"),
        (args.repeat.is_some(), "-r"),
        (args.separator.is_some(), "-x"),
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
                "leave it out; -p PID or -- CMD chooses the program, --csv or --json is for scripts",
            ))
        }
        None => Ok(()),
    }
}
