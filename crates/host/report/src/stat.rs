//! Counts in the two formats of `perf stat`: a table, and lines of fields for scripts, in perf's order.

use tiptoe_session::{Count, CountState, Counts, Session, Stat};

use crate::columns::{columns, joined, left, right, whole};
use crate::number::{counted, grouped, percent, unit_ns};
use crate::style::TextRole;
use crate::{Options, cost, grid, notes, printable};

mod csv;
mod intervals;
mod metric;
mod order;

pub(crate) use csv::quoted;
pub use csv::{CSV_HEADING, counts_csv, stat_csv};
pub use intervals::IntervalTable;

use metric::GroupedCounts;
use order::CGROUP;

const VALUE: usize = 18;
const UNIT: usize = 6;
/// The width of the events' column if rows have no limit.
const NAME: usize = 32;
/// The width to which a metric is padded before a spread or a share of time, if rows have no limit.
const METRIC: usize = 32;

/// The report has no table if intervals were already printed.
pub(crate) fn text(session: &Session, stat: &Stat, options: &Options) -> String {
    let mut text = String::new();
    if stat.intervals.is_none() {
        text += &table(stat, options);
    }
    let mut lines = notes::lines(session, options);
    lines.extend(cost::last_lines(session, stat_cost(session, stat), options));
    text + &lines.join("\n") + "\n"
}

fn table(stat: &Stat, options: &Options) -> String {
    let runs = match stat.runs {
        0 | 1 => String::new(),
        runs => format!(" ({runs} runs)"),
    };
    let heading = format!(
        "Performance counter stats for {}{runs}:",
        printable(&stat.whom)
    );
    let heading = options.wrapped(" ", &heading).join("\n");
    let mut text = format!("\n{heading}\n\n");
    let shown = order::shown(&stat.counts, options);
    let shared = GroupedCounts::of(&shown.counts, stat.elapsed_ns);
    let layout = Layout::of(&shown.counts, "", &shared, options);
    text += &blocks("\n", &shown.counts, &shared, &layout);
    if shown.others > 0 {
        let legend = grid::sum_legend(" ", shown.others, CGROUP, options);
        text += &format!("\n{}\n", legend.join("\n"));
    }
    text.push('\n');
    text += &elapsed(stat);
    if let (Some(user), Some(sys), 1) = (stat.user_ns, stat.sys_ns, stat.runs) {
        text += &format!(
            "\n{:>18.9} seconds user\n{:>18.9} seconds sys\n",
            user / 1e9,
            sys / 1e9
        );
    }
    text + "\n"
}

fn elapsed(stat: &Stat) -> String {
    let seconds = stat.elapsed_ns / 1e9;
    let Some(spread) = stat.elapsed_spread else {
        return format!("{seconds:>18.9} seconds time elapsed\n");
    };
    let off = spread * seconds;
    // The error has three significant digits, and the time has the error's number of decimals.
    let decimals = match off {
        off if off > 0.0 => (2 - off.log10().floor() as i32).clamp(0, 9) as usize,
        _ => 9,
    };
    format!(
        "{seconds:>18.decimals$} +- {off:.decimals$} seconds time elapsed  ( +- {:>5.2}% )\n",
        spread * 100.0
    )
}

/// Returns the counts so far, such as `18,383 cs`, without cgroups and uncounted events.
pub fn counts_so_far(counts: &[Count]) -> Vec<String> {
    let counts = counts.iter();
    let whole = counts.filter(|it| it.cgroup.is_none() && it.state == CountState::Counted);
    let text = |count: &Count| {
        let (value, unit) = shown(count, |value| grouped(value.round() as u64), hundredths);
        let event = printable(&count.event);
        match unit {
            "" => format!("{value} {event}"),
            unit => format!("{value} {} {event}", printable(unit)),
        }
    };
    whole.map(text).collect()
}

struct Layout<'a> {
    /// The text that begins each row.
    at: &'a str,
    name: usize,
    metric: usize,
    /// Whether a cgroup's name is above its rows instead of in a column, which would not fit.
    has_headings: bool,
    options: &'a Options,
}

impl Layout<'_> {
    /// Columns are as wide as in `perf stat`; if a terminal limits the rows, as wide as their widest cell.
    fn of<'a>(
        counts: &[Count],
        at: &'a str,
        shared: &GroupedCounts,
        options: &'a Options,
    ) -> Layout<'a> {
        let names = counts.iter().map(|count| columns(&printable(&count.event)));
        let metrics = counts.iter().filter_map(|count| shared.metric(count));
        let metrics = metrics.map(|metric| columns(&format!("# {metric}")));
        let (name, metric) = match options.width {
            None => (NAME, METRIC),
            Some(_) => (names.max().unwrap_or(0), metrics.max().unwrap_or(0)),
        };
        let cgroup = shared.cgroup_columns();
        let row = columns(at) + VALUE + UNIT + name + 1 + cgroup + 1 + metric;
        Layout {
            at,
            name,
            metric,
            has_headings: cgroup > 0 && options.width.is_some_and(|width| row > width),
            options,
        }
    }
}

fn blocks(between: &str, counts: &[Count], shared: &GroupedCounts, layout: &Layout) -> String {
    let of = |count: &Count| (count.cgroup.clone(), count.is_removed);
    let blocks = counts.chunk_by(|one, other| of(one) == of(other));
    let blocks: Vec<String> = blocks.map(|block| rows(block, shared, layout)).collect();
    blocks.join(between)
}

fn rows(counts: &[Count], shared: &GroupedCounts, layout: &Layout) -> String {
    let cgroup = counts.first().and_then(|count| shared.cgroup(count));
    let heading = cgroup.filter(|cgroup| layout.has_headings && !cgroup.is_empty());
    let heading = heading.map(|cgroup| {
        let indent = if layout.at.is_empty() { " " } else { layout.at };
        let lines = layout
            .options
            .wrapped(indent, &format!("{}:", whole(&cgroup)));
        lines.join("\n") + "\n"
    });
    let rows = counts.iter().map(|count| count_line(count, shared, layout));
    heading.into_iter().chain(rows).collect()
}

/// If a row is too wide, it is wrapped from the name on.
fn count_line(count: &Count, shared: &GroupedCounts, layout: &Layout) -> String {
    let cpu = count
        .cpu
        .map_or_else(String::new, |cpu| format!("{:<8} ", format!("CPU{cpu}")));
    let width = VALUE.saturating_sub(cpu.len());
    let (value, unit) = shown(count, |value| grouped(value.round() as u64), hundredths);
    let is_counted = count.state == CountState::Counted;
    let role = (!is_counted).then_some(TextRole::Warning);
    let value = layout.options.styled(role, &right(&value, width));
    let head = format!("{}{cpu}{value} {unit:<4} ", layout.at);
    let name = left(&whole(&count.event), layout.name) + " ";
    let cgroup = shared.cgroup(count).filter(|_| !layout.has_headings);
    let cgroup = cgroup.map_or_else(String::new, |cgroup| {
        left(&whole(&cgroup), shared.cgroup_columns()) + " "
    });
    let metric = shared
        .metric(count)
        .map_or_else(String::new, |metric| joined(&format!("# {metric}")));
    let end = row_end(count);
    let metric = match end.is_empty() {
        true => metric,
        false => left(&metric, layout.metric) + &end,
    };
    let rest = name + &cgroup + &metric;
    let lines = layout.options.wrapped(&head, rest.trim_end());
    lines
        .iter()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// Returns a row's end: the spread of several runs, and the share of time in which the event counted, if below
/// 100%.
fn row_end(count: &Count) -> String {
    let mut end = String::new();
    if let Some(spread) = count.spread {
        end += "  ";
        end += &joined(&format!("( +- {:>5.2}% )", spread * 100.0));
    }
    if count.time_running_ns < count.time_enabled_ns && count.state == CountState::Counted {
        end += &format!("  ({:.1}%)", running_percent(count));
    }
    end
}

/// Returns a value and its unit, with two decimals if there is a unit. An event that was not counted has a reason
/// instead of a value.
fn shown(
    count: &Count,
    whole: impl Fn(f64) -> String,
    hundredths: impl Fn(f64) -> String,
) -> (String, &str) {
    let unit = if count.unit == "ns" {
        "msec"
    } else {
        &count.unit
    };
    let value = match count.state {
        CountState::NotCounted => "<not counted>".to_owned(),
        CountState::NotSupported => "<not supported>".to_owned(),
        CountState::Counted if unit == "msec" => hundredths(count.value / 1e6),
        CountState::Counted if unit.is_empty() => whole(count.value),
        CountState::Counted => hundredths(count.value),
    };
    (value, unit)
}

fn hundredths(value: f64) -> String {
    let text = format!("{value:.2}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, "00"));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), grouped);
    format!("{whole}.{rest}")
}

fn running_percent(count: &Count) -> f64 {
    match count.time_enabled_ns {
        0 => 100.0,
        enabled => count.time_running_ns as f64 * 100.0 / enabled as f64,
    }
}

/// Returns all counts as lines of
/// `[CPU,]value,unit,event,[cgroup,][spread%,]running-ns,percent,metric,metric-unit`.
pub fn stat_fields(stat: &Stat, separator: &str) -> String {
    let shared = GroupedCounts::of(&stat.counts, stat.elapsed_ns);
    let has_spread = stat.counts.iter().any(|count| count.spread.is_some());
    let counts = stat.counts.iter();
    counts
        .map(|count| fields(None, has_spread, count, &shared, separator))
        .collect()
}

/// Returns an interval's counts as lines of [`stat_fields`]'s fields, after the interval's end in seconds.
pub fn counts_fields(counts: &Counts, separator: &str) -> String {
    let shared = GroupedCounts::of(&counts.counts, counts.duration_ns as f64);
    let at_ns = Some(counts.at_ns as f64);
    let rows = counts.counts.iter();
    rows.map(|count| fields(at_ns, false, count, &shared, separator))
        .collect()
}

/// Returns a count's fields. `has_spread` adds a field for the spread, even if this count has none.
fn fields(
    at_ns: Option<f64>,
    has_spread: bool,
    count: &Count,
    shared: &GroupedCounts,
    separator: &str,
) -> String {
    let (value, unit) = shown(
        count,
        |value| format!("{value:.0}"),
        |value| format!("{value:.2}"),
    );
    let percent = match count.state {
        CountState::Counted => running_percent(count),
        _ => 100.0,
    };
    let metric = shared.metric(count).unwrap_or_default();
    let mut all: Vec<String> = at_ns
        .map(|at| format!("{:16.9}", at / 1e9))
        .into_iter()
        .collect();
    all.extend(count.cpu.map(|cpu| format!("CPU{cpu}")));
    all.extend([value, unit.to_owned(), count.event.clone()]);
    let cgroup = || count.cgroup.clone().unwrap_or_default();
    all.extend(shared.cgroup(count).map(|_| cgroup()));
    let spread = || {
        let spread = count.spread.map(|spread| format!("{:.2}%", spread * 100.0));
        spread.unwrap_or_default()
    };
    all.extend(has_spread.then(spread));
    all.extend([
        count.time_running_ns.to_string(),
        format!("{percent:.2}"),
        metric.number.trim().trim_end_matches('%').to_owned(),
        metric.unit,
    ]);
    let all: Vec<String> = all.iter().map(|cell| quoted(cell, separator)).collect();
    all.join(separator) + "\n"
}

/// Returns the line on what counting cost.
pub fn stat_cost(session: &Session, stat: &Stat) -> String {
    let cost = &session.cost;
    let of = cost::base(session);
    let part = |count: u64, noun: &str, ns: f64| {
        let count = counted(count, noun);
        // A cost is exactly 0 if it was not measured or was within the noise.
        let ns = if ns == 0.0 {
            "0".to_owned()
        } else {
            unit_ns(ns)
        };
        format!("{count} x {ns} ns")
    };
    let within = stat.switches - stat.cgroup_switches;
    let mut parts = Vec::new();
    if stat.rounds == 0 || stat.switches > 0 {
        parts.push(part(within, "task switch", stat.switch_ns));
    }
    if stat.cgroup_switches > 0 {
        let switches = part(stat.cgroup_switches, "switch", stat.cgroup_switch_ns);
        parts.push(switches + " to another cgroup");
    }
    // The time of a reading is tiptoe's own, which is a part of all CPUs' time only.
    if stat.rounds > 0 && session.cpus.is_some() {
        let readings = part(stat.rounds, "reading", stat.round_ns);
        parts.push(readings + " of all tasks");
    }
    if stat.rounds > 0 && (stat.lives > 0 || session.cpus.is_some()) {
        let lives = part(stat.lives, "change", stat.life_ns);
        parts.push(lives + " of tasks that began, ended or moved");
    }
    if stat.tracepoint_hits > 0 {
        parts.push(part(
            stat.tracepoint_hits,
            "tracepoint hit",
            stat.tracepoint_ns,
        ));
    }
    if parts.is_empty() {
        let nothing = percent(cost.fraction);
        return format!(
            "cost of tracing: {nothing}% of {of}: the kernel counts these events anyway"
        );
    }
    let is_process_at_switches = session.cpus.is_none() && stat.switches > 0;
    let how = match stat.cgroup_switches + stat.rounds {
        1.. if !is_process_at_switches => "timed as they ran",
        _ => "calibrated on this machine",
    };
    format!(
        "cost of tracing: {}% of {of} ({} to {}, estimated from {}, {how})",
        percent(cost.fraction),
        percent(cost.low),
        percent(cost.high),
        parts.join(" and "),
    )
}

#[cfg(test)]
mod tests;
