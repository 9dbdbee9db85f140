//! The report for people: the target, the histograms, the refusals, the tables, the notes, the cost. The tables come
//! after the histograms and refusals, because these may be long and the end of the report remains on the screen.

use tiptoe_session::{Now, Process, Session};

use crate::columns::whole;
use crate::number::{grouped, plural, seconds};
use crate::{
    Options, cost, histogram, latency, locks, notes, now, printable, printable_lines, refusals,
    scopes, stat, table, waits, watch,
};

/// The most processes that the first line names.
const PROCESSES: usize = 3;

/// Returns the whole report. Its last line is the cost of tracing, which a session of one moment
/// ([`Session::now`]) does not have.
pub fn text(session: &Session, options: &Options) -> String {
    let options = options.fitted(|options| report(session, options).lines().count());
    printable_lines(&report(session, &options))
}

fn report(session: &Session, options: &Options) -> String {
    if let Some(now) = &session.now {
        return now_report(session, now, options);
    }
    if let Some(stat) = &session.stat {
        return stat::text(session, stat, options);
    }
    let mut blocks = vec![options.sentence(&summary(session))];
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
        // If there were intervals, each was already printed.
        let rows = scopes.intervals.is_none();
        let rows = rows.then(|| scopes::rows(&scopes.rows, &scopes.events, options));
        blocks.extend(rows);
    } else if !session.events.is_empty() {
        blocks.push(table::rows(session, options));
    }
    blocks.extend(locks::blocks(session, options));
    blocks.extend(latency::rows(session, options));
    let of = match session.cpus {
        Some(_) => "all CPUs' time",
        None => "the target's CPU time",
    };
    let own = cost::own_line(session);
    let last = own.into_iter().chain([cost::line(&session.cost, of)]);
    let last = last.flat_map(|line| options.sentence(&line));
    blocks.push(
        notes::lines(session, options)
            .into_iter()
            .chain(last)
            .collect(),
    );
    let blocks: Vec<String> = blocks.iter().map(|block| block.join("\n")).collect();
    blocks.join("\n\n") + "\n"
}

/// Returns the histograms of all timed rows.
fn histograms(session: &Session, options: &Options) -> Vec<Vec<String>> {
    let waits = session.waits.iter();
    let waits = waits.flat_map(|waits| waits::histograms(waits, options));
    let locks = session.locks.iter();
    let locks = locks.flat_map(|locks| locks::histograms(locks, options));
    let calls = histogram::of_calls(session, options);
    waits.chain(locks).chain(calls).collect()
}

/// Returns the report of one moment. It has no cost, because nothing was patched and no thread was stopped.
fn now_report(session: &Session, now: &Now, options: &Options) -> String {
    let targets: Vec<String> = session.targets.iter().map(process).collect();
    let heading = format!("{}: now", targets.join(", "));
    let mut blocks = vec![options.sentence(&heading)];
    blocks.extend(now::blocks(now, options));
    blocks.extend(Some(notes::lines(session, options)).filter(|notes| !notes.is_empty()));
    let blocks: Vec<String> = blocks.iter().map(|block| block.join("\n")).collect();
    blocks.join("\n\n") + "\n"
}

/// Returns the targets, how long they were traced, and their CPU time.
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
