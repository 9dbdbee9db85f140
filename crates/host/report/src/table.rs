//! The table of events: their counts, rates, shares and costs, and what counted them.

use tiptoe_session::{CountPart, Event, Session};

use crate::grid::{self, Grid, common_prefix};
use crate::number::{counted, grouped, percent, rate, share};
use crate::{Options, notes, printable};

/// Returns the heading, the busiest events, each with its parts, and the totals of the rest.
pub(crate) fn rows(session: &Session, options: &Options) -> Vec<String> {
    let mut events: Vec<&Event> = session.events.iter().collect();
    events.sort_by(|a, b| {
        b.scaled()
            .cmp(&a.scaled())
            .then_with(|| a.event.cmp(&b.event))
    });
    let hit = events.partition_point(|event| event.count > 0);
    // If not all events fit, those without a hit are left out.
    let all = options.shown(events.len()) == events.len();
    let shown = if all {
        events.len()
    } else {
        options.shown(hit)
    };
    let total = events.iter().map(|event| event.scaled()).sum();
    let shared = Shared::of(&events[..shown]);
    let mut grid = Grid::new(
        &["count", "rate/s", "share", "cost", "via"],
        shared.heading(),
    )
    .with_spare(&["rate/s", "cost", "share"]);
    for event in &events[..shown] {
        add_event(&mut grid, event, total, session, &shared, options);
        add_parts(&mut grid, event, session, options);
    }
    add_left_out(&mut grid, &events[shown..]);
    grid.lines(options)
}

/// What all rows share. It is in the heading, so that rows are narrower.
struct Shared<'a> {
    /// The beginning of all events' names, such as `uprobe:redis-server:`.
    prefix: &'a str,
    /// What counts all events: the agent or the kernel. `None` if events differ.
    via: Option<&'static str>,
}

impl<'a> Shared<'a> {
    fn of(events: &[&'a Event]) -> Shared<'a> {
        let via = |event: &&Event| event.via.word();
        let mut all = events.iter().map(via);
        let first = all.next();
        Shared {
            prefix: common_prefix(events.iter().map(|event| &*event.event)),
            via: first.filter(|first| all.all(|via| via == *first)),
        }
    }

    fn heading(&self) -> String {
        grid::heading(
            "event",
            self.prefix,
            self.via.map(|via| format!("via {via}")),
        )
    }
}

fn add_event(
    grid: &mut Grid,
    event: &Event,
    total: u64,
    session: &Session,
    shared: &Shared<'_>,
    options: &Options,
) {
    let reading = event.reading();
    let scaled = match reading.is_partial() {
        _ if reading.at_least => ">=",
        true => "~",
        false => "",
    };
    let cost = match session.cpu_ns {
        0 => "-".to_owned(),
        cpu_ns => percent(event.cost_ns / cpu_ns as f64) + "%",
    };
    let via = match shared.via {
        Some(_) => String::new(),
        None => event.via.word().to_owned(),
    };
    let cells = vec![
        format!("{scaled}{}", grouped(event.scaled())),
        rate(event.scaled(), window_ns(event, session)),
        options.share(event.scaled(), total),
        cost,
        via,
    ];
    let name = event.event.strip_prefix(shared.prefix);
    grid.add(
        cells,
        printable(name.unwrap_or(&event.event)),
        remarks(event),
    );
}

/// Returns the wall time for an event's rate: at most that of the trace, because `time_enabled_ns`
/// of an event in several processes is their sum.
fn window_ns(event: &Event, session: &Session) -> u64 {
    match event.time_enabled_ns {
        0 => session.duration_ns,
        enabled => enabled.min(session.duration_ns),
    }
}

/// Returns the remarks on an event, in parentheses.
fn remarks(event: &Event) -> String {
    let mut remarks = Vec::new();
    if !event.names.is_empty() {
        remarks.push(format!("also {}", event.names.join(", ")));
    }
    if event.reading().is_partial() {
        let share = share(event.time_running_ns, event.time_enabled_ns);
        let scaled = if event.at_least { "" } else { ", scaled" };
        remarks.push(format!("counted {share} of the time{scaled}"));
    }
    if event.lost > 0 {
        remarks.push(format!("lost {}", grouped(event.lost)));
    }
    remarks.extend(notes::in_words(&event.notes, &event.sentences));
    match remarks.is_empty() {
        true => String::new(),
        false => format!("  ({})", printable(&remarks.join("; "))),
    }
}

fn add_parts(grid: &mut Grid, event: &Event, session: &Session, options: &Options) {
    let mut parts: Vec<&CountPart> = event.by.iter().collect();
    parts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    let (shown, rest) = parts.split_at(options.shown(parts.len()));
    for part in shown {
        let cells = vec![
            grouped(part.count),
            rate(part.count, window_ns(event, session)),
            options.share(part.count, event.count),
            String::new(),
            String::new(),
        ];
        grid.add(cells, format!("  {}", printable(&part.key)), String::new());
    }
    if !rest.is_empty() {
        let count = rest.iter().map(|part| part.count).sum();
        grid.add_sum(grouped(count), format!("in {} more", rest.len()));
    }
}

/// Adds the sums of the rows that are not shown: of those that were hit, and of those that were not.
fn add_left_out(grid: &mut Grid, events: &[&Event]) {
    let hit = events.partition_point(|event| event.count > 0);
    let (more, idle) = events.split_at(hit);
    let count = more.iter().map(|event| event.scaled()).sum();
    grid.add_left_out(more.len(), "event", grouped(count));
    if !idle.is_empty() {
        let events = counted(idle.len(), "event");
        grid.add_sum(0.to_string(), format!("in {events} never hit"));
    }
}
