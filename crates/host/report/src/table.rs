//! The table of events: what was counted, how often, at what cost, by whom.

use tiptoe_session::{Event, Part, Session};

use crate::number::{grouped, percent, plural, rate, share};
use crate::{Options, printable};

/// The cells of one row, in the order of the columns.
struct Row {
    count: String,
    rate: String,
    share: String,
    cost: String,
    via: &'static str,
    event: String,
}

impl Row {
    fn line(&self) -> String {
        let Row {
            count,
            rate,
            share,
            cost,
            via,
            event,
        } = self;
        format!("{count:>14}  {rate:>13}  {share:>6}  {cost:>9}  {via:<6}  {event}")
    }
}

/// The heading, the busiest events with their parts, and what is left out.
pub(crate) fn rows(session: &Session, options: &Options) -> Vec<String> {
    let mut events: Vec<&Event> = session.events.iter().collect();
    events.sort_by(|a, b| {
        b.scaled()
            .cmp(&a.scaled())
            .then_with(|| a.event.cmp(&b.event))
    });
    let hit = events.partition_point(|event| event.count > 0);
    // A handful is shown whole; of many, only those that were hit.
    let all = options.shown(events.len()) == events.len();
    let shown = if all {
        events.len()
    } else {
        options.shown(hit)
    };
    let total = events.iter().map(|event| event.scaled()).sum();
    let mut rows = vec![heading(options)];
    for event in &events[..shown] {
        rows.push(options.fit(&event_row(event, total, session).line()));
        rows.extend(part_rows(event, session, options));
    }
    rows.extend(left_out(&events[shown..]));
    rows
}

fn heading(options: &Options) -> String {
    let row = Row {
        count: "count".into(),
        rate: "rate/s".into(),
        share: "share".into(),
        cost: "cost".into(),
        via: "via",
        event: "event".into(),
    };
    options.heading(&options.fit(&row.line()))
}

fn event_row(event: &Event, total: u64, session: &Session) -> Row {
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
    Row {
        count: format!("{scaled}{}", grouped(event.scaled())),
        rate: rate(event.scaled(), window_ns(event, session)),
        share: share(event.scaled(), total),
        cost,
        via: event.via.word(),
        event: printable(&event.event) + &remarks(event),
    }
}

/// The wall time that an event's rate is over. An event of several processes
/// holds the sum of their times, which is no time that passed.
fn window_ns(event: &Event, session: &Session) -> u64 {
    match event.time_enabled_ns {
        0 => session.duration_ns,
        enabled => enabled.min(session.duration_ns),
    }
}

/// What is to be said about an event, in parentheses behind it.
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
    remarks.extend(event.notes.iter().cloned());
    match remarks.is_empty() {
        true => String::new(),
        false => format!("  ({})", printable(&remarks.join("; "))),
    }
}

fn part_rows(event: &Event, session: &Session, options: &Options) -> Vec<String> {
    let mut parts: Vec<&Part> = event.by.iter().collect();
    parts.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    let shown = options.shown(parts.len());
    let row = |part: &&Part| Row {
        count: grouped(part.count),
        rate: rate(part.count, window_ns(event, session)),
        share: share(part.count, event.count),
        cost: String::new(),
        via: "",
        event: format!("  {}", printable(&part.key)),
    };
    let mut rows: Vec<String> = parts[..shown]
        .iter()
        .map(|part| options.fit(&row(part).line()))
        .collect();
    let rest = &parts[shown..];
    if !rest.is_empty() {
        let count = rest.iter().map(|part| part.count).sum();
        rows.push(format!("{:>14}  in {} more", grouped(count), rest.len()));
    }
    rows
}

/// What the rows that are not shown come to.
fn left_out(events: &[&Event]) -> Vec<String> {
    let hit = events.partition_point(|event| event.count > 0);
    let (more, idle) = events.split_at(hit);
    let mut rows = Vec::new();
    if !more.is_empty() {
        let count = grouped(more.iter().map(|event| event.scaled()).sum());
        let events = counted(more.len(), "more event");
        rows.push(format!("{count:>14}  in {events} (--top 0 shows all)"));
    }
    if !idle.is_empty() {
        let events = counted(idle.len(), "event");
        rows.push(format!("{:>14}  in {events} never hit", 0));
    }
    rows
}

/// So many of a thing: `1 event`, `2 events`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let count = count as u64;
    format!("{} {}", grouped(count), plural(count, noun))
}
