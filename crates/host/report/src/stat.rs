//! Counts in the two formats of `perf stat`: a table for people, and lines of fields for scripts, in perf's order.

use tiptoe_session::{Count, CountState, Counts, Session, Stat};

use crate::number::{grouped, percent, plural, unit_ns};
use crate::{cost, printable, printable_json, printable_lines};

mod csv;
mod metric;

use csv::quoted;
pub use csv::{counts_csv, csv_heading, stat_csv};

use metric::{Metric, Shared};

/// The columns of a value.
const VALUE: usize = 18;
/// The columns of an event's name.
const NAME: usize = 32;
/// The columns of a metric, if a spread or a share of time follows it.
const METRIC: usize = 32;

/// Returns the whole report for people. With intervals it has no table, because each interval was already printed.
pub(crate) fn text(session: &Session, stat: &Stat) -> String {
    let mut text = String::new();
    if stat.intervals.is_none() {
        text += &table(stat);
    }
    for note in &session.notes {
        text += &format!("note: {}\n", printable(note));
    }
    if let Some(own) = cost::own_line(session) {
        text += &format!("{own}\n");
    }
    text + &stat_cost(session, stat) + "\n"
}

fn table(stat: &Stat) -> String {
    let runs = match stat.runs {
        0 | 1 => String::new(),
        runs => format!(" ({runs} runs)"),
    };
    let mut text = format!(
        "\n Performance counter stats for {}{runs}:\n\n",
        printable(&stat.whom)
    );
    let shared = Shared::of(&stat.counts, stat.elapsed_ns);
    let of = |count: &Count| (count.cgroup.clone(), count.is_removed);
    let mut last = stat.counts.first().map(of);
    for count in &stat.counts {
        // An empty line separates the cgroups.
        if last != Some(of(count)) {
            last = Some(of(count));
            text.push('\n');
        }
        text += &row("", count, &shared);
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
    // The error has three significant digits; more decimals would mean nothing.
    let decimals = match off {
        off if off > 0.0 => (2 - off.log10().floor() as i32).clamp(0, 9) as usize,
        _ => 9,
    };
    format!(
        "{seconds:>18.decimals$} +- {off:.decimals$} seconds time elapsed  ( +- {:>5.2}% )\n",
        spread * 100.0
    )
}

/// Returns the heading of the lines of intervals.
pub fn counts_heading(per_cpu: bool) -> String {
    let cpu = if per_cpu { " CPU    " } else { "" };
    format!("#           time{cpu}             counts unit events\n")
}

/// Returns the lines of one interval.
pub fn counts(counts: &Counts) -> String {
    let shared = Shared::of(&counts.counts, counts.duration_ns as f64);
    let at = format!("{:16.9} ", counts.at_ns as f64 / 1e9);
    let rows = counts.counts.iter();
    let lines: String = rows.map(|count| row(&at, count, &shared)).collect();
    printable_lines(&lines)
}

/// Returns one interval as a JSON object on one line.
pub fn counts_json(counts: &Counts) -> Result<String, serde_json::Error> {
    printable_json(serde_json::to_string(counts)).map(|line| line + "\n")
}

fn row(at: &str, count: &Count, shared: &Shared) -> String {
    let cpu = count
        .cpu
        .map_or_else(String::new, |cpu| format!("{:<8} ", format!("CPU{cpu}")));
    let width = VALUE.saturating_sub(cpu.len());
    let (value, unit) = shown(count, |value| grouped(value.round() as u64), hundredths);
    let name = printable(&count.event);
    let cgroup = shared.cgroup(count).map_or_else(String::new, |cgroup| {
        let width = shared.cgroup_columns();
        format!("{:width$} ", printable(&cgroup))
    });
    let head = format!("{at}{cpu}{value:>width$} {unit:<4} ");
    let metric = shared
        .metric(count)
        .map_or_else(String::new, |metric| format!("# {metric}"));
    let mut end = String::new();
    if let Some(spread) = count.spread {
        end += &format!("  ( +- {:>5.2}% )", spread * 100.0);
    }
    if count.time_running_ns < count.time_enabled_ns && count.state == CountState::Counted {
        end += &format!("  ({:.1}%)", running_percent(count));
    }
    let line = match end.is_empty() {
        true => format!("{head}{name:<NAME$} {cgroup}{metric}"),
        false => format!("{head}{name:<NAME$} {cgroup}{metric:<METRIC$}{end}"),
    };
    line.trim_end().to_owned() + "\n"
}

/// Returns a value and its unit: hundredths for a value with a unit, otherwise a whole number. An
/// event that was not counted has the reason in place of a value.
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

/// Formats a number as `1,234.56`.
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

/// Returns all counts as lines of fields:
/// `[CPU,]value,unit,event,[cgroup,][spread%,]running-ns,percent,metric,metric-unit`.
pub fn stat_fields(stat: &Stat, separator: &str) -> String {
    let shared = Shared::of(&stat.counts, stat.elapsed_ns);
    let counts = stat.counts.iter();
    counts
        .map(|count| fields(None, count, &shared, separator))
        .collect()
}

/// Returns the counts of one interval as lines of the same fields, after the interval's end in seconds.
pub fn counts_fields(counts: &Counts, separator: &str) -> String {
    let shared = Shared::of(&counts.counts, counts.duration_ns as f64);
    let at_ns = Some(counts.at_ns as f64);
    let rows = counts.counts.iter();
    rows.map(|count| fields(at_ns, count, &shared, separator))
        .collect()
}

fn fields(at_ns: Option<f64>, count: &Count, shared: &Shared, separator: &str) -> String {
    let (value, unit) = shown(
        count,
        |value| format!("{value:.0}"),
        |value| format!("{value:.2}"),
    );
    let percent = match count.state {
        CountState::Counted => running_percent(count),
        _ => 100.0,
    };
    let (number, meaning) = match shared.metric(count) {
        Some(Metric { number, unit }) => (number, unit),
        None => (String::new(), String::new()),
    };
    let mut all: Vec<String> = at_ns
        .map(|at| format!("{:16.9}", at / 1e9))
        .into_iter()
        .collect();
    all.extend(count.cpu.map(|cpu| format!("CPU{cpu}")));
    all.extend([value, unit.to_owned(), count.event.clone()]);
    let cgroup = || count.cgroup.clone().unwrap_or_default();
    all.extend(shared.cgroup(count).map(|_| cgroup()));
    all.extend(count.spread.map(|spread| format!("{:.2}%", spread * 100.0)));
    all.extend([
        count.time_running_ns.to_string(),
        format!("{percent:.2}"),
        number.trim().trim_end_matches('%').to_owned(),
        meaning,
    ]);
    let all: Vec<String> = all.iter().map(|cell| quoted(cell, separator)).collect();
    all.join(separator) + "\n"
}

/// Returns what counting cost, as one line.
pub fn stat_cost(session: &Session, stat: &Stat) -> String {
    let cost = &session.cost;
    let of = match session.cpus {
        Some(_) => "all CPUs' time",
        None => "the target's CPU time",
    };
    let part = |count: u64, noun: &str, ns: f64| {
        let (count, noun) = (grouped(count), plural(count, noun));
        // A cost that was not measured, or was within the noise, is exactly 0, and printed as `0`.
        let ns = if ns == 0.0 {
            "0".to_owned()
        } else {
            unit_ns(ns)
        };
        format!("{count} {noun} x {ns} ns")
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
    if stat.rounds > 0 {
        let readings = part(stat.rounds, "reading", stat.round_ns);
        parts.push(readings + " of all tasks");
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
    let how = match stat.cgroup_switches + stat.rounds {
        0 => "calibrated on this machine",
        _ => "timed as they ran",
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
