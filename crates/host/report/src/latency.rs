//! The table of timed calls, the event with the most time first.

use std::cmp::Ordering;

use tiptoe_session::{CountPart, Ends, Event, Histogram, Latency, Session};

use crate::grid::{self, Grid, common_prefix};
use crate::heat::{HEAT, HeatScale};
use crate::number::{counted, grouped, time};
use crate::{Options, printable};

struct Column {
    heading: &'static str,
    cell: fn(Ends, &Latency) -> String,
}

const TIMED: Column = column("timed", |_, calls| grouped(calls.histogram.total()));
const LEFT: Column = column("left", |ends, _| grouped(ends.left));
const TIMES: [Column; 7] = [
    column(TOTAL, |_, calls| time(calls.total_ns as f64)),
    column("self", |_, calls| time(calls.self_ns as f64)),
    column("mean", |_, calls| if_timed(calls, calls.mean_ns())),
    column("p50", |_, calls| of_histogram(calls, |times| times.p50_ns)),
    column("p90", |_, calls| of_histogram(calls, |times| times.p90_ns)),
    column("p99", |_, calls| of_histogram(calls, |times| times.p99_ns)),
    column("max", |_, calls| of_histogram(calls, |times| times.max_ns)),
];
const SPARE: &[&str] = &["mean", "p90", "self", HEAT, LEFT.heading];
const TOTAL: &str = "total";

const fn column(heading: &'static str, cell: fn(Ends, &Latency) -> String) -> Column {
    Column { heading, cell }
}

fn of_histogram(calls: &Latency, ns: fn(&Histogram) -> u64) -> String {
    if_timed(calls, ns(&calls.histogram) as f64)
}

fn if_timed(calls: &Latency, ns: f64) -> String {
    match calls.histogram.total() {
        0 => "-".to_owned(),
        _ => time(ns),
    }
}

pub(crate) type TimedEvent<'a> = (&'a Event, &'a Latency);

pub(crate) fn worst_first(session: &Session) -> Vec<TimedEvent<'_>> {
    let hit = session.events.iter().filter(|event| event.count > 0);
    let mut timed: Vec<TimedEvent> = hit
        .filter_map(|event| Some((event, event.latency.as_deref()?)))
        .collect();
    timed.sort_by(|(a, a_calls), (b, b_calls)| {
        most_first(a_calls, b_calls).then_with(|| a.event.cmp(&b.event))
    });
    timed
}

fn most_first(a: &Latency, b: &Latency) -> Ordering {
    b.total_ns.cmp(&a.total_ns)
}

pub(crate) fn rows(session: &Session, options: &Options) -> Option<Vec<String>> {
    let timed = worst_first(session);
    let (shown, rest) = timed.split_at(options.shown(timed.len()));
    shown.first()?;
    let numbers = columns(&timed);
    let heads: Vec<&'static str> = numbers.iter().map(|column| column.heading).collect();
    let prefix = common_prefix(shown.iter().map(|(event, _)| &*event.event));
    let heat = options.heat(shown.iter().map(|(_, calls)| Some(&calls.histogram)));
    let mut grid = Grid::new(&heads, grid::heading("event", prefix, None))
        .with_words(&[HEAT])
        .with_legend(HEAT, heat.map(HeatScale::legend))
        .with_spare(SPARE);
    let columns = Columns {
        numbers,
        heat,
        options,
    };
    for (event, calls) in shown {
        let name = event.event.strip_prefix(prefix).unwrap_or(&event.event);
        grid.add(
            columns.cells(event.ends, calls),
            printable(name),
            String::new(),
        );
        add_parts(&mut grid, &columns, &event.by, options);
    }
    let rest_ns = rest.iter().map(|(_, calls)| calls.total_ns);
    let events = counted(rest.len() as u64, "more event");
    add_left_out(&mut grid, &columns, rest_ns, format!("in {events}"));
    Some(grid.lines(options))
}

fn columns(timed: &[TimedEvent]) -> Vec<Column> {
    let left = |(event, _): &TimedEvent| event.ends.is_some_and(|ends| ends.left > 0);
    let left = timed.iter().any(left);
    let left = left.then_some(LEFT);
    [TIMED].into_iter().chain(left).chain(TIMES).collect()
}

struct Columns<'a> {
    numbers: Vec<Column>,
    heat: Option<HeatScale>,
    options: &'a Options,
}

impl Columns<'_> {
    fn cells(&self, ends: Option<Ends>, calls: &Latency) -> Vec<String> {
        let ends = ends.unwrap_or_default();
        let numbers = self.numbers.iter().map(|column| (column.cell)(ends, calls));
        let heat = HeatScale::cell(self.heat, Some(&calls.histogram), self.options);
        numbers.chain([heat]).collect()
    }

    fn total(&self, total: &str) -> Vec<String> {
        let number = |column: &Column| match column.heading {
            TOTAL => total.to_owned(),
            _ => String::new(),
        };
        let numbers = self.numbers.iter().map(number);
        numbers.chain([String::new()]).collect()
    }
}

fn add_parts(grid: &mut Grid, columns: &Columns, parts: &[CountPart], options: &Options) {
    let mut parts: Vec<(&CountPart, &Latency)> = parts
        .iter()
        .filter_map(|part| Some((part, part.latency.as_deref()?)))
        .collect();
    parts.sort_by(|(a, a_calls), (b, b_calls)| {
        most_first(a_calls, b_calls).then_with(|| a.key.cmp(&b.key))
    });
    let (shown, rest) = parts.split_at(options.shown(parts.len()));
    for (part, calls) in shown {
        let name = format!("  {}", printable(&part.key));
        grid.add(columns.cells(part.ends, calls), name, String::new());
    }
    let rest_ns = rest.iter().map(|(_, calls)| calls.total_ns);
    add_left_out(grid, columns, rest_ns, format!("  in {} more", rest.len()));
}

fn add_left_out(
    grid: &mut Grid,
    columns: &Columns,
    ns: impl ExactSizeIterator<Item = u64>,
    name: String,
) {
    if ns.len() == 0 {
        return;
    }
    let total = time(ns.map(|ns| ns as f64).sum());
    grid.add(columns.total(&total), name, String::new());
}
