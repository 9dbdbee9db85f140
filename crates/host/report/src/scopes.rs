//! The table of scopes, those with the most CPU time first.

use tiptoe_session::{Scope, Scopes};

use crate::grid::Grid;
use crate::number::{grouped, time};
use crate::{Options, printable};

/// Returns the heading, the rows, and the number of rows that are not shown.
pub(crate) fn rows(scopes: &Scopes, options: &Options) -> Vec<String> {
    if scopes.rows.is_empty() {
        return vec!["no scope was entered".to_owned()];
    }
    let all: u64 = scopes.rows.iter().filter_map(|row| row.cpu_ns).sum();
    let (shown, rest) = scopes.rows.split_at(options.shown(scopes.rows.len()));
    let fixed = ["entries", "CPU time", "share", "CPU/entry", "wall time"];
    let events: Vec<String> = scopes.events.iter().map(|event| printable(event)).collect();
    let heads = fixed.into_iter().chain(events.iter().map(|event| &**event));
    let mut grid = Grid::new(&heads.collect::<Vec<_>>(), "scope".to_owned())
        .with_spare(&["wall time", "CPU/entry"]);
    for row in shown {
        grid.add(
            numbers(row, scopes, all, options),
            printable(&row.name),
            String::new(),
        );
    }
    let mut lines = grid.lines(options);
    if !rest.is_empty() {
        let more = grouped(rest.len() as u64);
        lines.extend(options.sentence(&format!("{more} more: --top 0 shows all")));
    }
    lines
}

fn numbers(row: &Scope, scopes: &Scopes, all: u64, options: &Options) -> Vec<String> {
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
