//! The table of calls that were timed: how long they took, the worst event first.

use std::cmp::Ordering;

use tiptoe_session::{Event, Latency, Part, Session};

use crate::number::{grouped, percent, time};
use crate::table::counted;
use crate::{Options, event_name, printable};

/// A column: its heading, and an event's cell in it.
struct Column {
    heading: &'static str,
    cell: fn(&Latency) -> String,
}

const TIMED: Column = column("timed", |calls| grouped(calls.histogram.total()));
const LEFT: Column = column("left", |calls| grouped(calls.left));
const TIMES: [Column; 7] = [
    column(TOTAL, |calls| time(calls.total_ns as f64)),
    column("self", |calls| time(calls.self_ns as f64)),
    column("mean", |calls| of_some(calls, calls.mean_ns())),
    column("p50", |calls| of_some(calls, calls.histogram.p50_ns as f64)),
    column("p90", |calls| of_some(calls, calls.histogram.p90_ns as f64)),
    column("p99", |calls| of_some(calls, calls.histogram.p99_ns as f64)),
    column("max", |calls| of_some(calls, calls.histogram.max_ns as f64)),
];
/// The column that rows are sorted by.
const TOTAL: &str = "total";

const fn column(heading: &'static str, cell: fn(&Latency) -> String) -> Column {
    Column { heading, cell }
}

/// A time that only a call can have.
fn of_some(calls: &Latency, ns: f64) -> String {
    match calls.histogram.total() {
        0 => "-".to_owned(),
        _ => time(ns),
    }
}

/// An event whose calls were timed.
pub(crate) type Timed<'a> = (&'a Event, &'a Latency);

/// The events that were timed and hit, those with most time in them first.
pub(crate) fn worst_first(session: &Session) -> Vec<Timed<'_>> {
    let hit = session.events.iter().filter(|event| event.count > 0);
    let mut timed: Vec<Timed> = hit
        .filter_map(|event| Some((event, event.latency.as_deref()?)))
        .collect();
    timed.sort_by(|(a, a_calls), (b, b_calls)| worse((&a.event, a_calls), (&b.event, b_calls)));
    timed
}

/// More time first; names decide where it is the same.
fn worse((a, a_calls): (&str, &Latency), (b, b_calls): (&str, &Latency)) -> Ordering {
    let by_total = b_calls.total_ns.cmp(&a_calls.total_ns);
    by_total.then_with(|| a.cmp(b))
}

/// One row before it is put in columns.
struct Row {
    cells: Vec<String>,
    name: String,
}

/// The heading, the events with most time in them with their parts, and what is
/// left out; `None` where nothing was timed.
pub(crate) fn rows(session: &Session, options: &Options) -> Option<Vec<String>> {
    let timed = worst_first(session);
    let (shown, rest) = timed.split_at(options.shown(timed.len()));
    shown.first()?;
    let columns = columns(&timed);
    let mut rows = Vec::new();
    for (event, calls) in shown {
        rows.push(row(&columns, calls, event_name(&event.event)));
        rows.extend(part_rows(&columns, &event.by, options));
    }
    let rest_ns = rest.iter().map(|(_, calls)| calls.total_ns);
    let events = counted(rest.len(), "more event");
    rows.extend(left_out(&columns, rest_ns, format!("in {events}")));
    Some(lines(&columns, &rows, options))
}

/// Frames that were left are a column of their own where there are any.
fn columns(timed: &[Timed]) -> Vec<Column> {
    let left = timed.iter().any(|(_, calls)| calls.left > 0);
    let left = left.then_some(LEFT);
    [TIMED].into_iter().chain(left).chain(TIMES).collect()
}

fn row(columns: &[Column], calls: &Latency, name: String) -> Row {
    let cells = columns.iter().map(|column| (column.cell)(calls));
    Row {
        cells: cells.collect(),
        name,
    }
}

fn part_rows(columns: &[Column], parts: &[Part], options: &Options) -> Vec<Row> {
    let mut parts: Vec<(&Part, &Latency)> = parts
        .iter()
        .filter_map(|part| Some((part, part.latency.as_deref()?)))
        .collect();
    parts.sort_by(|(a, a_calls), (b, b_calls)| worse((&a.key, a_calls), (&b.key, b_calls)));
    let (shown, rest) = parts.split_at(options.shown(parts.len()));
    let shown = shown
        .iter()
        .map(|(part, calls)| row(columns, calls, format!("  {}", printable(&part.key))));
    let rest_ns = rest.iter().map(|(_, calls)| calls.total_ns);
    let rest = left_out(columns, rest_ns, format!("  in {} more", rest.len()));
    shown.chain(rest).collect()
}

/// The total of what is not shown, in the column of totals; nothing of nothing.
fn left_out(
    columns: &[Column],
    ns: impl ExactSizeIterator<Item = u64>,
    name: String,
) -> Option<Row> {
    let none = ns.len() == 0;
    let total = time(ns.map(|ns| ns as f64).sum());
    let cell = |column: &Column| match column.heading {
        TOTAL => total.clone(),
        _ => String::new(),
    };
    let cells = columns.iter().map(cell).collect();
    (!none).then_some(Row { cells, name })
}

/// Each column as wide as its widest cell, so that the names have what room there is.
fn lines(columns: &[Column], rows: &[Row], options: &Options) -> Vec<String> {
    let heading = Row {
        cells: columns.iter().map(|column| column.heading.into()).collect(),
        name: "event".into(),
    };
    let widest = |at: usize| {
        let cells = rows.iter().map(|row| row.cells[at].len());
        cells.fold(columns[at].heading.len(), usize::max)
    };
    let widths: Vec<usize> = (0..columns.len()).map(widest).collect();
    let heading = options.heading(&line(&heading, &widths, options));
    let rows = rows.iter().map(|row| line(row, &widths, options));
    std::iter::once(heading).chain(rows).collect()
}

/// A name that has not enough room loses its front: functions differ at their ends.
fn line(row: &Row, widths: &[usize], options: &Options) -> String {
    let mut line = String::new();
    for (cell, width) in row.cells.iter().zip(widths) {
        line += &format!("{cell:>width$}  ");
    }
    let room = options.width.map(|width| width.saturating_sub(line.len()));
    let long = room.map_or(0, |room| row.name.chars().count().saturating_sub(room));
    match long {
        0 => line += &row.name,
        long => line.extend(std::iter::once('…').chain(row.name.chars().skip(long + 1))),
    }
    options.fit(&line)
}

/// What the numbers leave out, each in one sentence.
pub(crate) fn notes(session: &Session) -> Vec<String> {
    let timed = worst_first(session);
    let spent = match session.budget {
        Some(budget) => format!(
            "the budget of {}% was spent, or they were nested too deep",
            short_percent(budget)
        ),
        None => "they were nested too deep".to_owned(),
    };
    let asked = [
        session
            .under
            .as_ref()
            .map(|function| format!("only calls below {function} were counted")),
        session.slower_ns.map(|ns| {
            let ns = time(ns as f64);
            format!("only calls that took longer than {ns} are in the times and the histograms")
        }),
    ];
    let ended = [
        sentence(
            &timed,
            |calls| calls.only_counted,
            &format!("only counted, not timed: {spent}"),
        ),
        sentence(
            &timed,
            |calls| calls.left,
            "left without a return: by longjmp, an exception, or the end of their thread",
        ),
        sentence(
            &timed,
            |calls| calls.inside,
            "still running when the trace ended",
        ),
    ];
    asked.into_iter().chain(ended).flatten().collect()
}

/// `3 calls of EVENT were WHAT`; `None` where there were none.
fn sentence(timed: &[Timed], number: fn(&Latency) -> u64, what: &str) -> Option<String> {
    let (most, calls) = timed.iter().max_by_key(|(_, calls)| number(calls))?;
    let sum = timed
        .iter()
        .fold(0_u64, |sum, (_, calls)| sum.saturating_add(number(calls)));
    let event = event_name(&most.event);
    let whose = match number(calls) == sum {
        true => format!("of {event}"),
        false => format!("(most of {event})"),
    };
    let verb = if sum == 1 { "was" } else { "were" };
    (sum > 0).then(|| format!("{} {whose} {verb} {what}", counted(sum as usize, "call")))
}

/// `1`, not `1.00`.
fn short_percent(fraction: f64) -> String {
    let percent = percent(fraction);
    let digits = percent.trim_end_matches('0');
    digits.trim_end_matches('.').to_owned()
}
