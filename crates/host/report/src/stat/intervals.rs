//! The table of intervals, which grows while a trace runs.

use std::collections::BTreeMap;

use tiptoe_session::Counts;

use super::metric::GroupedCounts;
use super::order::{self, CGROUP};
use super::{Layout, blocks};
use crate::columns::right;
use crate::{Options, grid, printable_lines};

/// The table of intervals so far.
#[derive(Debug, Default)]
pub struct IntervalTable {
    has_heading: bool,
    /// Whether the line that explains sums of cgroups was printed.
    has_legend: bool,
    /// For each cgroup of the last interval, by path: the first event's sum so far.
    totals: BTreeMap<String, f64>,
}

impl IntervalTable {
    /// Returns an interval's lines; the first call returns the heading before them.
    pub fn lines(&mut self, counts: &Counts, options: &Options) -> String {
        let mut text = match std::mem::replace(&mut self.has_heading, true) {
            true => String::new(),
            false => heading(counts, options),
        };
        let shown = order::shown_in_interval(&counts.counts, &mut self.totals, options);
        let shared = GroupedCounts::of(&shown.counts, counts.duration_ns as f64);
        let at = format!("{:.9}", counts.at_ns as f64 / 1e9);
        let at = right(&at, time_columns(options)) + " ";
        let layout = Layout::of(&shown.counts, &at, &shared, options);
        text += &blocks("", &shown.counts, &shared, &layout);
        if shown.others > 0 && !std::mem::replace(&mut self.has_legend, true) {
            let legend = grid::sum_legend("# ", shown.others, CGROUP, options);
            text += &(legend.join("\n") + "\n");
        }
        printable_lines(&text)
    }
}

fn heading(counts: &Counts, options: &Options) -> String {
    let is_per_cpu = counts.counts.iter().any(|count| count.cpu.is_some());
    let cpu = if is_per_cpu { " CPU    " } else { "" };
    let time = right("time", time_columns(options) - 1);
    format!("#{time}{cpu}             counts unit events\n")
}

/// Returns the width of the times' column: as in perf, or less if a terminal limits the rows.
fn time_columns(options: &Options) -> usize {
    options.width.map_or(16, |_| 13)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_session::Count;

    #[test]
    fn sums_of_cgroups_are_explained_once() {
        let of = |cgroup: Option<&str>| Count {
            event: "cs".into(),
            cgroup: cgroup.map(str::to_owned),
            value: 4.0,
            cpu: Some(1),
            ..Count::default()
        };
        let counts = Counts {
            counts: [None, Some("a"), Some("b")].map(of).to_vec(),
            ..Counts::default()
        };
        let options = Options {
            top: Some(1),
            ..Options::default()
        };
        let mut table = IntervalTable::default();
        let lines = [(); 2].map(|()| table.lines(&counts, &options));
        let first: Vec<&str> = lines[0].lines().collect();
        assert!(
            first[0].starts_with("#") && first[0].contains(" CPU "),
            "{first:?}"
        );
        assert!(first[3].contains("1 more cgroup"), "{first:?}");
        assert_eq!(
            first[4..],
            ["# (1 more cgroup: their sum; --top 0 shows all)"]
        );
        let second: Vec<&str> = lines[1].lines().collect();
        assert_eq!(second, first[1..4]);
    }
}
