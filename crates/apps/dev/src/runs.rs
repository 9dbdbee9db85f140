//! Runs the same bench in several processes, because a process's addresses and calibration affect all its results.

use crate::table::{Table, TableRow, median_and_spread};

impl Table {
    /// Returns the medians. Keeps only the notes that all runs have, and no lines in another tool's form.
    pub fn of_runs(runs: &[Table]) -> Table {
        let Some(first) = runs.first() else {
            return Table::default();
        };
        let all = || runs.iter().flat_map(|run| &run.rows);
        let mut rows: Vec<TableRow> = Vec::new();
        for row in all() {
            if !rows.iter().any(|known| known.is_same_case(row)) {
                let same = all().filter(|other| other.is_same_case(row));
                rows.push(TableRow::of_same_case(row, &same.collect::<Vec<_>>()));
            }
        }
        let mut notes = first.notes.clone();
        notes.retain(|note| runs.iter().all(|run| run.notes.contains(note)));
        let count = runs.len();
        notes.push(format!(
            "a value is the median of {count} processes, ± half their range"
        ));
        Table {
            bench: first.bench.clone(),
            lines: Vec::new(),
            rows,
            notes,
        }
    }
}

impl TableRow {
    fn is_same_case(&self, other: &TableRow) -> bool {
        let case = |row: &TableRow| TableRow {
            waiting_percent: None,
            asleep_percent: None,
            value: 0.0,
            spread: None,
            ..row.clone()
        };
        case(self) == case(other)
    }

    fn of_same_case(row: &TableRow, all: &[&TableRow]) -> TableRow {
        let values: Vec<f64> = all.iter().map(|row| row.value).collect();
        let median = |of: fn(&TableRow) -> Option<f64>| {
            let known: Vec<f64> = all.iter().filter_map(|row| of(row)).collect();
            (!known.is_empty()).then(|| median_and_spread(&known).0)
        };
        let of_values = TableRow::of_range("", &values, "");
        TableRow {
            waiting_percent: median(|row| row.waiting_percent),
            asleep_percent: median(|row| row.asleep_percent),
            value: of_values.value,
            spread: of_values.spread,
            ..row.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: six of ten values of a second process were outside of the spread.
    #[test]
    fn runs_spread_as_far_as_their_medians() {
        let run = |value: f64, busy: &str| Table {
            bench: "scope".into(),
            rows: vec![
                TableRow::new("enter", &[value], "ns"),
                TableRow::new("enter", &[1.0], "ns").of_threads(1),
            ],
            notes: vec!["seen by all".into(), busy.into()],
            ..Table::default()
        };
        let table = Table::of_runs(&[run(3.0, "busy"), run(9.0, "idle"), run(4.0, "idle")]);
        let numbers = table.rows.iter().map(|row| (row.value, row.spread));
        assert_eq!(
            numbers.collect::<Vec<_>>(),
            [(4.0, Some(3.0)), (1.0, Some(0.0))]
        );
        let own = "a value is the median of 3 processes, ± half their range";
        assert_eq!(table.notes, ["seen by all", own]);
    }
}
