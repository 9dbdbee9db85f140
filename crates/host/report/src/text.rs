//! The report for people: whom, the tables, the histograms, what was refused, notes, the cost.

use tiptoe_session::{Now, Process, Session};

use crate::number::{grouped, plural, seconds};
use crate::{
    Options, calls, cost, ends, histogram, latency, locks, now, printable, printable_lines,
    refusals, scopes, stat, table, waits, watch,
};

/// How many processes the first line names.
const PROCESSES: usize = 3;

/// The whole report; its last line is the cost of tracing.
pub fn text(session: &Session, options: &Options) -> String {
    printable_lines(&whole(session, options))
}

fn whole(session: &Session, options: &Options) -> String {
    if let Some(now) = &session.now {
        return moment(session, now, options);
    }
    if let Some(counted) = &session.stat {
        return stat::text(session, counted);
    }
    let mut blocks = vec![vec![options.fit(&summary(session))]];
    if let Some(found) = &session.waits {
        blocks.push(waits::rows(found, options));
    } else if let Some(found) = &session.watch {
        blocks.extend(watch::blocks(found, options));
    } else if let Some(found) = &session.scopes {
        blocks.push(scopes::rows(found, options));
    } else if !session.events.is_empty() {
        blocks.push(table::rows(session, options));
    }
    blocks.extend(locks::blocks(session, options));
    blocks.extend(locks::histograms(session, options));
    blocks.extend(latency::rows(session, options));
    blocks.extend(histogram::blocks(session, options));
    if !session.refusals.is_empty() {
        blocks.push(refusals::rows(&session.refusals, options));
    }
    let notes: Vec<String> = ends::notes(session)
        .into_iter()
        .chain(calls::notes(session))
        .chain(session.waits.iter().flat_map(waits::notes))
        .chain(locks::notes(session))
        .chain(session.watch.iter().flat_map(watch::notes))
        .collect();
    let notes = notes.iter().chain(&session.notes);
    let notes = notes.map(|note| format!("note: {}", printable(note)));
    let of = match session.cpus {
        Some(_) => "all CPUs' time",
        None => "the target's CPU time",
    };
    let own = cost::own_line(session);
    let last = notes.chain(own).chain([cost::line(&session.cost, of)]);
    blocks.push(last.collect());
    let blocks: Vec<String> = blocks.iter().map(|block| block.join("\n")).collect();
    blocks.join("\n\n") + "\n"
}

/// What was read of one moment, which cost nobody anything.
fn moment(session: &Session, now: &Now, options: &Options) -> String {
    let whom: Vec<String> = session.targets.iter().map(process).collect();
    let mut blocks = vec![vec![options.fit(&format!("{}: now", whom.join(", ")))]];
    blocks.extend(now::blocks(now, options));
    let blocks: Vec<String> = blocks.iter().map(|block| block.join("\n")).collect();
    blocks.join("\n\n") + "\n"
}

/// Whom, how long, and how much CPU time that was.
fn summary(session: &Session) -> String {
    let mut whom: Vec<String> = session
        .targets
        .iter()
        .take(PROCESSES)
        .map(process)
        .collect();
    if session.targets.len() > PROCESSES {
        let more = grouped((session.targets.len() - PROCESSES) as u64);
        whom.push(format!("{more} more"));
    }
    if let Some(cpus) = session.cpus {
        let cpus = format!("{cpus} {}", plural(u64::from(cpus), "CPU"));
        return format!(
            "the whole system ({cpus}): traced for {}",
            seconds(session.duration_ns)
        );
    }
    if whom.is_empty() {
        whom.push(printable(&session.command.join(" ")));
    }
    let (took, cpu) = (seconds(session.duration_ns), seconds(session.cpu_ns));
    format!("{}: traced for {took}, {cpu} of CPU time", whom.join(", "))
}

fn process(process: &Process) -> String {
    format!("{} (pid {})", printable(&process.comm), process.pid)
}
