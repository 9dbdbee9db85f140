//! The scopes (parts of the run that the program names), those with the most CPU time first, as a table and as CSV.
//! No option changes the CSV's columns.

use tiptoe_session::{Scope, ScopeCounts, Session};

use crate::grid::{self, Grid};
use crate::number::{grouped, seconds, time};
use crate::stat::quoted;
use crate::{Options, printable, printable_lines};

const SCOPE: &str = "scope";

pub(crate) fn rows(all: &[Scope], events: &[String], options: &Options) -> Vec<String> {
    if all.is_empty() {
        return vec!["no scope was entered".to_owned()];
    }
    let cpu_ns: u64 = all.iter().filter_map(|row| row.cpu_ns).sum();
    let (shown, rest) = all.split_at(options.shown(all.len()));
    let fixed = ["entries", "CPU time", "share", "CPU/entry", "wall time"];
    let events: Vec<String> = events.iter().map(|event| printable(event)).collect();
    let heads = fixed.into_iter().chain(events.iter().map(|event| &**event));
    let mut grid = Grid::new(&heads.collect::<Vec<_>>(), "scope".to_owned())
        .with_spare(&["wall time", "CPU/entry"]);
    for row in shown {
        let each = cpu_ns_per_entry(std::slice::from_ref(row));
        let cells = numbers(row, each, events.len(), cpu_ns, options);
        grid.add(cells, printable(&row.name), String::new());
    }
    if rest.is_empty() {
        return grid.lines(options);
    }
    let sum = sum(rest);
    let each = cpu_ns_per_entry(rest);
    let cells = numbers(&sum, each, events.len(), cpu_ns, options);
    grid.add(cells, sum.name, String::new());
    let mut lines = grid.lines(options);
    lines.extend(grid::sum_legend("", rest.len(), SCOPE, options));
    lines
}

fn sum(scopes: &[Scope]) -> Scope {
    let mut sum = Scope {
        name: grid::sum_name(scopes.len(), SCOPE),
        ..Scope::default()
    };
    for scope in scopes {
        sum.entries = sum.entries.saturating_add(scope.entries);
        sum.cpu_ns = known_sum(sum.cpu_ns, scope.cpu_ns);
        sum.wall_ns = known_sum(sum.wall_ns, scope.wall_ns);
        sum.counts
            .resize(sum.counts.len().max(scope.counts.len()), 0);
        for (sum, count) in sum.counts.iter_mut().zip(&scope.counts) {
            *sum = sum.saturating_add(*count);
        }
    }
    sum
}

/// Returns the CPU time per entry. Rows without an entry are excluded: the time outside all scopes and, in an interval,
/// scopes entered before the interval.
fn cpu_ns_per_entry(scopes: &[Scope]) -> Option<u64> {
    let entered = scopes.iter().filter(|scope| scope.entries > 0);
    let timed = entered.filter_map(|scope| Some((scope.cpu_ns?, scope.entries)));
    let (cpu_ns, entries) = timed.fold((0_u64, 0_u64), |(cpu_ns, entries), (ns, more)| {
        (cpu_ns.saturating_add(ns), entries.saturating_add(more))
    });
    cpu_ns.checked_div(entries)
}

fn known_sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    let both = one.zip(other).map(|(one, other)| one.saturating_add(other));
    both.or(one).or(other)
}

/// Returns the table of an interval, under its end time.
pub fn scope_counts(counts: &ScopeCounts, options: &Options) -> String {
    let mut lines = vec![format!("{}:", seconds(counts.at_ns))];
    lines.extend(rows(&counts.rows, &counts.events, options));
    printable_lines(&(lines.join("\n") + "\n\n"))
}

/// The CSV's columns, as a line.
pub const SCOPES_CSV_HEADING: &str = "seconds,scope,event,value,unit,state\n";

/// Returns the heading and a line for each number of each scope; empty if scopes were not counted.
pub fn scopes_csv(session: &Session) -> String {
    let Some(scopes) = &session.scopes else {
        return String::new();
    };
    let at_ns = session.duration_ns;
    SCOPES_CSV_HEADING.to_owned() + &csv_lines(at_ns, &scopes.rows, &scopes.events)
}

/// Returns a line for each number of each scope of an interval.
pub fn scope_counts_csv(counts: &ScopeCounts) -> String {
    csv_lines(counts.at_ns, &counts.rows, &counts.events)
}

fn csv_lines(at_ns: u64, rows: &[Scope], events: &[String]) -> String {
    let at = format!("{:.9}", at_ns as f64 / 1e9);
    let line = |scope: &str, event: &str, value: Option<u64>, unit: &str| {
        let (value, state) = match value {
            Some(value) => (value.to_string(), "counted"),
            None => (String::new(), "not counted"),
        };
        let cells = [&at, scope, event, &value, unit, state];
        cells.map(|cell| quoted(cell, ",")).join(",") + "\n"
    };
    let of_scope = |row: &Scope| {
        // A row without wall time is the time outside all scopes, which has no entries.
        let entries = row.wall_ns.map(|_| row.entries);
        let fixed = [
            ("entries", entries, ""),
            ("cpu-time", row.cpu_ns, "ns"),
            ("wall-time", row.wall_ns, "ns"),
        ];
        let fixed = fixed.map(|(event, value, unit)| line(&row.name, event, value, unit));
        let counts = events.iter().enumerate();
        let counts =
            counts.map(|(at, event)| line(&row.name, event, row.counts.get(at).copied(), ""));
        fixed.concat() + &counts.collect::<String>()
    };
    rows.iter().map(of_scope).collect()
}

fn numbers(
    row: &Scope,
    each: Option<u64>,
    events: usize,
    all: u64,
    options: &Options,
) -> Vec<String> {
    let unknown = || "-".to_owned();
    let ns = |ns: Option<u64>| ns.map_or_else(unknown, |ns| time(ns as f64));
    let fixed = [
        if row.entries == 0 {
            unknown()
        } else {
            grouped(row.entries)
        },
        ns(row.cpu_ns),
        row.cpu_ns
            .map_or_else(unknown, |cpu| options.share(cpu, all)),
        ns(each),
        ns(row.wall_ns),
    ];
    let count = |at: usize| {
        row.counts
            .get(at)
            .map_or_else(unknown, |count| grouped(*count))
    };
    let counts = (0..events).map(count);
    fixed.into_iter().chain(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scopes() -> (Vec<Scope>, Vec<String>) {
        let rows = vec![
            Scope {
                name: "checkout/pay\u{1b}ment".into(),
                entries: 2,
                wall_ns: Some(4_000_000),
                cpu_ns: Some(3_000_000),
                counts: vec![1234],
            },
            Scope {
                name: "(no scope)".into(),
                ..Scope::default()
            },
        ];
        (rows, vec!["page-faults".into()])
    }

    #[test]
    fn an_unknown_number_is_a_dash() {
        let (all, events) = scopes();
        let options = Options::default();
        let lines = rows(&all, &events, &options);
        assert!(lines[0].ends_with("page-faults  scope"), "{lines:?}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(
            words[..6],
            ["2", "3.00ms", "100.0%", "1.50ms", "4.00ms", "1,234"]
        );
        assert!(!lines[1].contains('\u{1b}'), "{lines:?}");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words[..6], ["-"; 6]);
        assert_eq!(rows(&[], &[], &options), ["no scope was entered"]);
    }

    #[test]
    fn scopes_beyond_the_limit_are_summed() {
        let (mut all, events) = scopes();
        all.push(Scope {
            entries: 1,
            cpu_ns: Some(1_000_000),
            counts: vec![6],
            ..all[0].clone()
        });
        all.rotate_right(1);
        let options = Options {
            top: Some(1),
            ..Options::default()
        };
        let lines = rows(&all, &events, &options);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        let sum = [
            "2", "3.00ms", "75.0%", "1.50ms", "4.00ms", "1,234", "2", "more", "scopes",
        ];
        assert_eq!(words, sum);
        assert_eq!(
            lines[3..],
            ["(2 more scopes: their sum; --top 0 shows all)"]
        );
    }

    #[test]
    fn the_sums_time_per_entry_is_that_of_entered_scopes() {
        let (mut all, events) = scopes();
        all[1].cpu_ns = Some(5_000_000);
        all.insert(0, all[0].clone());
        let options = Options {
            top: Some(1),
            ..Options::default()
        };
        let lines = rows(&all, &events, &options);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words[..4], ["2", "8.00ms", "72.7%", "1.50ms"]);
    }

    #[test]
    fn an_unknown_number_is_no_zero_in_csv() {
        let (rows, events) = scopes();
        let counts = ScopeCounts {
            at_ns: 1_500_000_000,
            events,
            rows,
            ..ScopeCounts::default()
        };
        let text = scope_counts_csv(&counts);
        let expected = [
            "1.500000000,checkout/pay\\x1bment,entries,2,,counted",
            "1.500000000,checkout/pay\\x1bment,cpu-time,3000000,ns,counted",
            "1.500000000,checkout/pay\\x1bment,wall-time,4000000,ns,counted",
            "1.500000000,checkout/pay\\x1bment,page-faults,1234,,counted",
            "1.500000000,(no scope),entries,,,not counted",
            "1.500000000,(no scope),cpu-time,,ns,not counted",
            "1.500000000,(no scope),wall-time,,ns,not counted",
            "1.500000000,(no scope),page-faults,,,not counted",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(SCOPES_CSV_HEADING.split(',').count(), 6);
    }
}
