//! Counts as CSV, which has the same columns with all options.

use tiptoe_session::{Count, CountState, Counts, Stat};

use super::metric::GroupedCounts;
use crate::printable;

/// The columns' names as a line.
pub const CSV_HEADING: &str = "seconds,cgroup,cpu,event,value,unit,state,counted_ns,wanted_ns,spread_percent,metric,metric_unit\n";

/// Returns the heading and a line for each count.
pub fn stat_csv(stat: &Stat) -> String {
    CSV_HEADING.to_owned() + &lines(stat.elapsed_ns, &stat.counts, stat.elapsed_ns)
}

/// Returns a line for each count of an interval.
pub fn counts_csv(counts: &Counts) -> String {
    let (at_ns, elapsed_ns) = (counts.at_ns as f64, counts.duration_ns as f64);
    lines(at_ns, &counts.counts, elapsed_ns)
}

fn lines(at_ns: f64, counts: &[Count], elapsed_ns: f64) -> String {
    let shared = GroupedCounts::of(counts, elapsed_ns);
    let lines = counts.iter().map(|count| line(at_ns, count, &shared));
    lines.collect()
}

fn line(at_ns: f64, count: &Count, shared: &GroupedCounts) -> String {
    let metric = shared.metric(count).unwrap_or_default();
    let state = match count.state {
        CountState::Counted => "counted",
        CountState::NotCounted => "not counted",
        CountState::NotSupported => "not supported",
    };
    let of_counted = |text: String| match count.state {
        CountState::Counted => text,
        _ => String::new(),
    };
    let spread = count.spread.map(|spread| format!("{:.2}", spread * 100.0));
    let cells = [
        format!("{:.9}", at_ns / 1e9),
        count.cgroup.clone().unwrap_or_default(),
        count.cpu.map_or_else(String::new, |cpu| cpu.to_string()),
        count.event.clone(),
        of_counted(value(count)),
        count.unit.clone(),
        state.to_owned(),
        count.time_running_ns.to_string(),
        count.time_enabled_ns.to_string(),
        spread.unwrap_or_default(),
        metric.number.trim().trim_end_matches('%').to_owned(),
        metric.unit,
    ];
    cells.map(|cell| quoted(&cell, ",")).join(",") + "\n"
}

fn value(count: &Count) -> String {
    match count.unit.as_str() {
        "" | "ns" => format!("{:.0}", count.value),
        _ => format!("{:.2}", count.value),
    }
}

/// Returns the cell, quoted if it contains the separator or a quote. Line ends are escaped.
pub(crate) fn quoted(cell: &str, separator: &str) -> String {
    let cell = printable(cell);
    match cell.contains(separator) || cell.contains('"') {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_all_columns() {
        let count = |event: &str, state: CountState| Count {
            event: event.into(),
            state,
            value: 1234.0,
            time_running_ns: 5,
            time_enabled_ns: 10,
            ..Count::default()
        };
        let stat = Stat {
            elapsed_ns: 2e9,
            counts: vec![
                Count {
                    unit: "ns".into(),
                    ..count("task-clock", CountState::Counted)
                },
                Count {
                    cgroup: Some("a,\"b\"".into()),
                    cpu: Some(1),
                    spread: Some(0.5),
                    ..count("cpu/event=1,umask=2/", CountState::NotCounted)
                },
            ],
            ..Stat::default()
        };
        let text = stat_csv(&stat);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].split(',').count(), 12);
        assert_eq!(
            lines[1],
            "2.000000000,,,task-clock,1234,ns,counted,5,10,,0.000,CPUs utilized"
        );
        assert_eq!(
            lines[2],
            "2.000000000,\"a,\"\"b\"\"\",1,\"cpu/event=1,umask=2/\",,,not counted,5,10,50.00,,"
        );
        let interval = Counts {
            at_ns: 500_000_000,
            duration_ns: 1,
            counts: vec![count("cs", CountState::NotSupported)],
        };
        assert_eq!(
            counts_csv(&interval),
            "0.500000000,,,cs,,,not supported,5,10,,,\n"
        );
    }
}
