//! The table of calls that were timed: how long they took, the worst event first.

use std::cmp::Ordering;

use tiptoe_session::{Ends, Event, Latency, Part, Session};

use crate::number::{grouped, time};
use crate::table::counted;
use crate::{Options, event_name, printable};

/// A column: its heading, and an event's cell in it.
struct Column {
    heading: &'static str,
    cell: fn(Ends, &Latency) -> String,
}

const TIMED: Column = column("timed", |_, calls| grouped(calls.histogram.total()));
const LEFT: Column = column("left", |ends, _| grouped(ends.left));
const TIMES: [Column; 7] = [
    column(TOTAL, |_, calls| time(calls.total_ns as f64)),
    column("self", |_, calls| time(calls.self_ns as f64)),
    column("mean", |_, calls| of_some(calls, calls.mean_ns())),
    column("p50", |_, calls| {
        of_some(calls, calls.histogram.p50_ns as f64)
    }),
    column("p90", |_, calls| {
        of_some(calls, calls.histogram.p90_ns as f64)
    }),
    column("p99", |_, calls| {
        of_some(calls, calls.histogram.p99_ns as f64)
    }),
    column("max", |_, calls| {
        of_some(calls, calls.histogram.max_ns as f64)
    }),
];
/// The column that rows are sorted by.
const TOTAL: &str = "total";

const fn column(heading: &'static str, cell: fn(Ends, &Latency) -> String) -> Column {
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
        let name = event_name(&event.event);
        rows.push(row(&columns, event.ends, calls, name));
        rows.extend(part_rows(&columns, &event.by, options));
    }
    let rest_ns = rest.iter().map(|(_, calls)| calls.total_ns);
    let events = counted(rest.len(), "more event");
    rows.extend(left_out(&columns, rest_ns, format!("in {events}")));
    Some(lines(&columns, &rows, options))
}

/// Frames that were left are a column of their own where there are any.
fn columns(timed: &[Timed]) -> Vec<Column> {
    let left = |(event, _): &Timed| event.ends.is_some_and(|ends| ends.left > 0);
    let left = timed.iter().any(left);
    let left = left.then_some(LEFT);
    [TIMED].into_iter().chain(left).chain(TIMES).collect()
}

fn row(columns: &[Column], ends: Option<Ends>, calls: &Latency, name: String) -> Row {
    let ends = ends.unwrap_or_default();
    let cells = columns.iter().map(|column| (column.cell)(ends, calls));
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
    let shown = shown.iter().map(|(part, calls)| {
        row(
            columns,
            part.ends,
            calls,
            format!("  {}", printable(&part.key)),
        )
    });
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
