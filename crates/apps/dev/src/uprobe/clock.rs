//! The row `rdtsc`: one reading of the time stamp counter.

use crate::assembly::{KINDS, READINGS, READS, Site};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::target::{Question, Target};

/// Adds the row: the time of many readings, minus the time of a function that only returns.
pub(super) fn add(table: &mut Table, target: &mut Target, options: &Options) -> Result<(), Error> {
    let empty = KINDS.iter().find(|site| site.name == "ret");
    let mut time = |site: Site| -> Result<f64, Error> {
        let question = Question {
            site,
            depth: 0,
            threads: 1,
            ms: options.ms,
        };
        Ok(target.measure(question)?.ns_per_call)
    };
    let mut each = Vec::new();
    for _ in 0..options.rounds {
        let rest = empty.map_or(Ok(0.0), |&site| time(site))?;
        each.push((time(READINGS)? - rest) / READS as f64);
    }
    let row = TableRow {
        threads: Some(1),
        ..TableRow::new("rdtsc", &each, "ns")
    };
    table.notes.push(format!(
        "a timed call reads the time stamp counter twice: {:.1} of `latency`'s ns",
        2.0 * row.value
    ));
    table.rows.push(row);
    Ok(())
}
