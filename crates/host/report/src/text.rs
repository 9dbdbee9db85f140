//! The report for people: target, histograms, refusals, tables, notes, cost. Histograms and refusals may be long, so
//! the tables follow and remain on the screen.

use tiptoe_session::{Now, Process, Session};

use crate::columns::whole;
use crate::number::{grouped, plural, seconds};
use crate::{
    LEAST_TOP, Options, cost, histogram, latency, locks, notes, now, printable, printable_lines,
    refusals, scopes, stat, table, waits, watch,
};

const PROCESSES: usize = 3;

/// Returns the whole report. Its last line is the cost of tracing, which a session of one moment
/// ([`Session::now`]) lacks.
pub fn text(session: &Session, options: &Options) -> String {
    printable_lines(&fitted(session, options))
}

/// Returns the report with the most rows that leave one terminal line for the prompt. If even the fewest rows do not
/// fit with the notes, the notes are above the tables. If the tables and the cost do not fit, rows have fewer details.
fn fitted(session: &Session, options: &Options) -> String {
    let report = |options: &Options| match (&session.now, &session.stat) {
        (Some(now), _) => now_report(session, now, options),
        (None, Some(stat)) => stat::text(session, stat, options),
        (None, None) => Report::new(session, options).with_notes_last(),
    };
    if options.height.is_none() || options.top.is_some() || options.histograms {
        return report(options);
    }
    if let Some(fitted) = options.fitted(LEAST_TOP, |options| report(options).lines().count()) {
        return report(&fitted);
    }
    if session.now.is_some() || session.stat.is_some() {
        return report(&options.with_top(LEAST_TOP));
    }
    let end = |options: &Options| {
        lines_of(Report::new(session, options).end())
            .lines()
            .count()
    };
    let folded = Options {
        is_folded: true,
        ..*options
    };
    let fitted = options.fitted(LEAST_TOP, end);
    let fitted = fitted.or_else(|| folded.fitted(1, end));
    let fitted = fitted.unwrap_or_else(|| folded.with_top(LEAST_TOP));
    let report = Report::new(session, &fitted);
    match report.with_notes_last() {
        text if Some(text.lines().count()) < fitted.height => text,
        _ => report.with_notes_first(),
    }
}

struct Report {
    summary: Vec<String>,
    notes: Vec<String>,
    tables: Vec<Vec<String>>,
    cost: Vec<String>,
}

impl Report {
    fn new(session: &Session, options: &Options) -> Report {
        let cost = cost::line(&session.cost, cost::base(session));
        Report {
            summary: options.sentence(&summary(session)),
            notes: notes::lines(session, options),
            tables: tables(session, options),
            cost: cost::last_lines(session, cost, options),
        }
    }

    fn with_notes_last(&self) -> String {
        let last = self.notes.iter().chain(&self.cost).cloned().collect();
        let blocks = [self.summary.clone()].into_iter();
        lines_of(blocks.chain(self.tables.clone()).chain([last]))
    }

    fn with_notes_first(&self) -> String {
        let notes = Some(self.notes.clone()).filter(|notes| !notes.is_empty());
        let blocks = [self.summary.clone()].into_iter().chain(notes);
        lines_of(blocks.chain(self.end()))
    }

    fn end(&self) -> impl Iterator<Item = Vec<String>> {
        self.tables.clone().into_iter().chain([self.cost.clone()])
    }
}

fn lines_of(blocks: impl Iterator<Item = Vec<String>>) -> String {
    let blocks: Vec<String> = blocks.map(|block| block.join("\n")).collect();
    blocks.join("\n\n") + "\n"
}

fn tables(session: &Session, options: &Options) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    if options.histograms {
        blocks.extend(histograms(session, options));
    }
    if !session.refusals.is_empty() {
        blocks.push(refusals::rows(&session.refusals, options));
    }
    if let Some(waits) = &session.waits {
        blocks.push(waits::rows(waits, options));
    } else if let Some(watch) = &session.watch {
        blocks.extend(watch::blocks(watch, options));
    } else if let Some(scopes) = &session.scopes {
        // Intervals were already printed.
        let rows = scopes.intervals.is_none();
        let rows = rows.then(|| scopes::rows(&scopes.rows, &scopes.events, options));
        blocks.extend(rows);
    } else if !session.events.is_empty() {
        blocks.push(table::rows(session, options));
    }
    blocks.extend(locks::blocks(session, options));
    blocks.extend(latency::rows(session, options));
    blocks
}

fn histograms(session: &Session, options: &Options) -> Vec<Vec<String>> {
    let waits = session.waits.iter();
    let waits = waits.flat_map(|waits| waits::histograms(waits, options));
    let locks = session.locks.iter();
    let locks = locks.flat_map(|locks| locks::histograms(locks, options));
    let calls = histogram::of_calls(session, options);
    waits.chain(locks).chain(calls).collect()
}

/// The report has no cost, because nothing was patched or stopped.
fn now_report(session: &Session, now: &Now, options: &Options) -> String {
    let targets: Vec<String> = session.targets.iter().map(process).collect();
    let heading = format!("{}: now", targets.join(", "));
    let mut blocks = vec![options.sentence(&heading)];
    blocks.extend(now::blocks(now, options));
    blocks.extend(Some(notes::lines(session, options)).filter(|notes| !notes.is_empty()));
    lines_of(blocks.into_iter())
}

fn summary(session: &Session) -> String {
    let mut targets: Vec<String> = session
        .targets
        .iter()
        .take(PROCESSES)
        .map(process)
        .collect();
    if session.targets.len() > PROCESSES {
        let more = grouped((session.targets.len() - PROCESSES) as u64);
        targets.push(format!("{more} more"));
    }
    if let Some(cpus) = session.cpus {
        let cpus = format!("{cpus} {}", plural(u64::from(cpus), "CPU"));
        return format!(
            "the whole system ({cpus}): traced for {}",
            seconds(session.duration_ns)
        );
    }
    if targets.is_empty() {
        targets.push(match session.command.is_empty() {
            true => "no process".to_owned(),
            false => printable(&session.command.join(" ")),
        });
    }
    let (took, cpu) = (seconds(session.duration_ns), seconds(session.cpu_ns));
    format!(
        "{}: traced for {took}, {cpu} of CPU time",
        targets.join(", ")
    )
}

fn process(process: &Process) -> String {
    whole(&format!("{} (pid {})", process.comm, process.pid))
}
