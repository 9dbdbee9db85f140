//! The table of scopes, those with the most CPU time first.

use tiptoe_session::{Scope, Scopes};

use crate::number::{grouped, share, time};
use crate::{Options, printable};

/// Returns the heading, the rows, and the number of rows that are not shown.
pub(crate) fn rows(scopes: &Scopes, options: &Options) -> Vec<String> {
    if scopes.rows.is_empty() {
        return vec!["no scope was entered".to_owned()];
    }
    let all: u64 = scopes.rows.iter().filter_map(|row| row.cpu_ns).sum();
    let (shown, rest) = scopes.rows.split_at(options.shown(scopes.rows.len()));
    let fixed = ["entries", "CPU time", "share", "CPU/entry", "wall time"];
    let events = scopes.events.iter().map(|event| printable(event));
    let heading: Vec<String> = fixed.map(str::to_owned).into_iter().chain(events).collect();
    let mut cells = vec![heading];
    cells.extend(shown.iter().map(|row| numbers(row, scopes, all)));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..cells[0].len()).filter_map(width).collect();
    let names =
        std::iter::once("scope".to_owned()).chain(shown.iter().map(|row| printable(&row.name)));
    let line = |(row, name): (&Vec<String>, String)| {
        let numbers = row.iter().zip(&widths);
        let numbers: String = numbers
            .map(|(cell, width)| format!("{cell:>width$}  "))
            .collect();
        options.fit(&(numbers + &name))
    };
    let mut lines: Vec<String> = cells.iter().zip(names).map(line).collect();
    lines[0] = options.heading(&lines[0]);
    if !rest.is_empty() {
        lines.push(format!(
            "{} more: --top 0 shows all",
            grouped(rest.len() as u64)
        ));
    }
    lines
}

fn numbers(row: &Scope, scopes: &Scopes, all: u64) -> Vec<String> {
    let unknown = || "-".to_owned();
    let ns = |ns: Option<u64>| ns.map_or_else(unknown, |ns| time(ns as f64));
    let each = row.cpu_ns.and_then(|cpu| cpu.checked_div(row.entries));
    let fixed = [
        if row.entries == 0 {
            unknown()
        } else {
            grouped(row.entries)
        },
        ns(row.cpu_ns),
        row.cpu_ns.map_or_else(unknown, |cpu| share(cpu, all)),
        ns(each),
        ns(row.wall_ns),
    ];
    let count = |at: usize| {
        row.counts
            .get(at)
            .map_or_else(unknown, |count| grouped(*count))
    };
    let counts = (0..scopes.events.len()).map(count);
    fixed.into_iter().chain(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_number_is_a_dash() {
        let scopes = Scopes {
            events: vec!["page-faults".into()],
            rows: vec![
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
            ],
        };
        let options = Options::default();
        let lines = rows(&scopes, &options);
        assert!(lines[0].ends_with("page-faults  scope"), "{lines:?}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(
            words[..6],
            ["2", "3.00ms", "100.0%", "1.50ms", "4.00ms", "1,234"]
        );
        assert!(!lines[1].contains('\u{1b}'), "{lines:?}");
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words[..6], ["-"; 6]);
        assert_eq!(rows(&Scopes::default(), &options), ["no scope was entered"]);
    }
}
