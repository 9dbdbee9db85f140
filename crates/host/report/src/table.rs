//! The table of events: counts, rates, shares, costs, and whether the agent (tiptoe's library) or the kernel counted.

use tiptoe_session::{CountPart, Event, Session};

use crate::grid::{self, Grid, common_prefix};
use crate::number::{counted, grouped, percent, rate, share};
use crate::{Options, notes, printable};

pub(crate) fn rows(session: &Session, options: &Options) -> Vec<String> {
    let mut events: Vec<&Event> = session.events.iter().collect();
    events.sort_by(|a, b| {
        b.scaled()
            .cmp(&a.scaled())
            .then_with(|| a.event.cmp(&b.event))
    });
    let hit = events.partition_point(|event| event.count > 0);
    // If not all events fit, those without a hit are omitted.
    let all = options.shown(events.len()) == events.len();
    let shown = if all {
        events.len()
    } else {
        options.shown(hit)
    };
    let whole = Whole::of(&events);
    let (shown, rest) = events.split_at(shown);
    let shared = SharedHeading {
        prefix: common_prefix(shown.iter().map(|event| &*event.event)),
        via: grid::shared(shown.iter().map(|event| Some(event.via.word()))),
    };
    let via = shared.via.map(|via| format!("via {via}"));
    let heading = grid::heading("event", shared.prefix, via);
    let mut grid = Grid::new(&["count", "rate/s", "share", "cost", "via"], heading)
        .with_spare(&["rate/s", "cost", "share"]);
    for event in shown {
        add_event(&mut grid, event, &whole, session, &shared, options);
        add_parts(&mut grid, event, session, options);
    }
    add_left_out(&mut grid, rest);
    grid.lines(options)
}

/// The sum of all counts, and how many of them are lower bounds or scaled.
struct Whole {
    total: u64,
    bound_count: usize,
    scaled_count: usize,
}

impl Whole {
    fn of(events: &[&Event]) -> Whole {
        let with = |mark: &str| {
            events
                .iter()
                .filter(|event| count_mark(event) == mark)
                .count()
        };
        Whole {
            total: events.iter().map(|event| event.scaled()).sum(),
            bound_count: with(AT_LEAST),
            scaled_count: with(ABOUT),
        }
    }

    /// An exact count has `<=` if another count is a lower bound, because the true sum of all counts is then
    /// larger.
    fn share_mark(&self, event: &Event) -> &'static str {
        let own = count_mark(event);
        let other_bounds = self.bound_count - usize::from(own == AT_LEAST);
        let other_scaled = self.scaled_count - usize::from(own == ABOUT);
        let is_all = event.scaled() == self.total && other_bounds + other_scaled == 0;
        match (own, other_bounds) {
            _ if is_all || own.is_empty() && event.count == 0 => "",
            _ if self.scaled_count > 0 => ABOUT,
            ("", 0) => "",
            ("", _) => "<=",
            (_, 0) => AT_LEAST,
            _ => ABOUT,
        }
    }
}

const AT_LEAST: &str = ">=";
const ABOUT: &str = "~";

fn count_mark(event: &Event) -> &'static str {
    match event.is_partial() {
        _ if event.at_least => AT_LEAST,
        true => ABOUT,
        false => "",
    }
}

/// What all rows share. The heading shows it once, so that rows are narrower.
struct SharedHeading<'a> {
    /// The beginning of all names, such as `uprobe:redis-server:`.
    prefix: &'a str,
    /// `None` if events differ.
    via: Option<&'static str>,
}

fn add_event(
    grid: &mut Grid,
    event: &Event,
    whole: &Whole,
    session: &Session,
    shared: &SharedHeading<'_>,
    options: &Options,
) {
    let mark = count_mark(event);
    let cost = match session.cpu_ns {
        0 => "-".to_owned(),
        cpu_ns => percent(event.cost_ns / cpu_ns as f64) + "%",
    };
    let via = match shared.via {
        Some(_) => String::new(),
        None => event.via.word().to_owned(),
    };
    let cells = vec![
        mark.to_owned() + &grouped(event.scaled()),
        mark.to_owned() + &rate(event.scaled(), window_ns(event, session)),
        whole.share_mark(event).to_owned() + &options.share(event.scaled(), whole.total),
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

/// Returns the wall time by which a count is divided for its rate: the time for which the event was enabled, but at
/// most the trace's duration. Counters are not read exactly when the trace's clock starts and stops.
fn window_ns(event: &Event, session: &Session) -> u64 {
    match event.time_enabled_ns {
        0 => session.duration_ns,
        enabled => enabled.min(session.duration_ns),
    }
}

fn remarks(event: &Event) -> String {
    let mut remarks = Vec::new();
    if !event.names.is_empty() {
        remarks.push(format!("also {}", event.names.join(", ")));
    }
    if event.is_partial() {
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
    // The parts of a lower bound are lower bounds too, so their true shares may be larger or smaller.
    let (mark, share_mark) = match event.at_least {
        true => (AT_LEAST, ABOUT),
        false => ("", ""),
    };
    for part in shown {
        let cells = vec![
            mark.to_owned() + &grouped(part.count),
            mark.to_owned() + &rate(part.count, window_ns(event, session)),
            share_mark.to_owned() + &options.share(part.count, event.count),
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

fn add_left_out(grid: &mut Grid, events: &[&Event]) {
    let hit = events.partition_point(|event| event.count > 0);
    let (more, idle) = events.split_at(hit);
    let count = more.iter().map(|event| event.scaled()).sum();
    grid.add_left_out(more.len(), "event", grouped(count));
    if !idle.is_empty() {
        let events = counted(idle.len() as u64, "event");
        grid.add_sum(0.to_string(), format!("in {events} never hit"));
    }
}
