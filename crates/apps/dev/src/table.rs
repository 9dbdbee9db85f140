//! Tables of results, as text and as JSON.

use std::fmt;

use serde::Serialize;

/// The results of one bench. Serialized: `{"bench", "rows": […]}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    /// The name of the bench.
    pub bench: &'static str,
    /// Lines in the form of another tool, whose numbers the rows have, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// The rows.
    pub rows: Vec<TableRow>,
    /// Refused or skipped cases, each in one sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// One number and its case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TableRow {
    /// The case: `off`, `count`, a binary.
    pub case: String,
    /// The first instruction of the probed function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The number of callers of the probed function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// The number of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The number of CPUs, if there are fewer than threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// The number of distinct functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<usize>,
    /// The number of mappings of the address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<usize>,
    /// The rate of their changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_per_s: Option<u32>,
    /// The pairs in a hundred that were for a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_targets: Option<u32>,
    /// The share of their time in which threads waited for a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_percent: Option<f64>,
    /// The share of their time in which threads slept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asleep_percent: Option<f64>,
    /// The median.
    pub value: f64,
    /// Half the distance between the quartiles; half the range of few values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The unit of `value` and `spread`.
    pub unit: &'static str,
}

/// The columns. Those without a value in any row are omitted.
const HEADS: [&str; 12] = [
    "case",
    "site",
    "depth",
    "threads",
    "cpus",
    "sites",
    "mappings",
    "changes/s",
    "cpu targets %",
    "waiting %",
    "asleep %",
    "value",
];

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let cells: Vec<[String; HEADS.len()]> = self.rows.iter().map(TableRow::cells).collect();
        let shown: Vec<usize> = (0..HEADS.len())
            .filter(|&c| cells.iter().any(|row| !row[c].is_empty()))
            .collect();
        let width = |c: usize| {
            cells
                .iter()
                .map(|row| row[c].chars().count())
                .chain([HEADS[c].len()])
                .max()
        };
        self.lines
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))?;
        let mut line = |text: &dyn Fn(usize) -> String| {
            let columns = shown
                .iter()
                .map(|&c| format!("{:<1$}", text(c), width(c).unwrap_or(0)));
            writeln!(f, "{}", columns.collect::<Vec<_>>().join("  ").trim_end())
        };
        line(&|c| HEADS[c].to_owned())?;
        for row in &cells {
            line(&|c| row[c].clone())?;
        }
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl TableRow {
    /// Returns a row with the median and the spread of a case.
    pub(crate) fn new(case: impl Into<String>, values: &[f64], unit: &'static str) -> TableRow {
        let (value, spread) = median_and_spread(values);
        TableRow {
            case: case.into(),
            value,
            spread: Some(spread),
            unit,
            ..TableRow::default()
        }
    }

    /// Returns a row with the median and half the range of few values.
    pub(crate) fn of_range(
        case: impl Into<String>,
        values: &[f64],
        unit: &'static str,
    ) -> TableRow {
        let (low, high) = range(values);
        TableRow {
            spread: Some((high - low) / 2.0),
            ..TableRow::new(case, values, unit)
        }
    }

    /// Returns the row with this site.
    pub(crate) fn at(self, site: impl Into<String>) -> TableRow {
        TableRow {
            site: Some(site.into()),
            ..self
        }
    }

    /// Returns the row with this number of threads, and with the CPUs if the threads must share them.
    pub(crate) fn of_threads(self, threads: u32) -> TableRow {
        let cpus = crate::together::cpus();
        TableRow {
            threads: Some(threads),
            cpus: (threads > cpus).then_some(cpus),
            ..self
        }
    }

    fn cells(&self) -> [String; HEADS.len()] {
        let number = |n: Option<usize>| n.map_or(String::new(), |n| n.to_string());
        let percent = |n: Option<f64>| n.map_or(String::new(), |n| format!("{n:.1}"));
        let spread = self
            .spread
            .map_or(String::new(), |spread| format!(" ± {spread:.2}"));
        [
            self.case.clone(),
            self.site.clone().unwrap_or_default(),
            number(self.depth.map(|n| n as usize)),
            number(self.threads.map(|n| n as usize)),
            number(self.cpus.map(|n| n as usize)),
            number(self.sites),
            number(self.mappings),
            number(self.changes_per_s.map(|n| n as usize)),
            number(self.cpu_targets.map(|n| n as usize)),
            percent(self.waiting_percent),
            percent(self.asleep_percent),
            format!("{:.2}{spread} {}", self.value, self.unit),
        ]
    }
}

/// Returns the median and half the distance between the quartiles of repeated measurements.
pub(crate) fn median_and_spread(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = share * (sorted.len().saturating_sub(1)) as f64;
        let (low, high) = (
            sorted.get(place.floor() as usize),
            sorted.get(place.ceil() as usize),
        );
        low.zip(high)
            .map_or(f64::NAN, |(low, high)| low + (high - low) * place.fract())
    };
    (at(0.5), (at(0.75) - at(0.25)) / 2.0)
}

/// Returns the least and the greatest value.
pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().min_by(f64::total_cmp);
    let most = values.iter().copied().max_by(f64::total_cmp);
    (least.unwrap_or(f64::NAN), most.unwrap_or(f64::NAN))
}

/// Returns the interval that contains the median 19 times of 20. It is by rank, because the distribution is unknown.
pub(crate) fn interval(values: &[f64]) -> (f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = 0.98 * (sorted.len() as f64).sqrt();
    let low = (sorted.len() as f64 / 2.0 - half).floor().max(0.0) as usize;
    let at = |rank: usize| sorted.get(rank).copied().unwrap_or(f64::NAN);
    (at(low), at(sorted.len().saturating_sub(low + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_interpolate() {
        assert_eq!(median_and_spread(&[4.0, 1.0, 3.0, 2.0]), (2.5, 0.75));
        assert_eq!(median_and_spread(&[7.0]), (7.0, 0.0));
    }

    #[test]
    fn intervals_are_by_rank() {
        let values: Vec<f64> = (1..=31).rev().map(f64::from).collect();
        assert_eq!(interval(&values), (11.0, 21.0));
        assert_eq!(interval(&[7.0]), (7.0, 7.0));
    }

    #[test]
    fn columns_without_values_are_not_shown() {
        let row = TableRow {
            case: "count".into(),
            depth: Some(5),
            value: 0.5,
            unit: "ns",
            ..TableRow::default()
        };
        let table = Table {
            bench: "uprobe",
            rows: vec![row],
            notes: vec!["x".into()],
            ..Table::default()
        };
        assert_eq!(
            table.to_string(),
            "case   depth  value\ncount  5      0.50 ns\nnote: x\n"
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        let row = TableRow {
            case: "count".into(),
            site: Some("push".into()),
            value: 0.5,
            unit: "ns",
            ..TableRow::default()
        };
        let table = Table {
            bench: "uprobe",
            rows: vec![row],
            ..Table::default()
        };
        let json = serde_json::to_string(&table).expect("serializable");
        assert_eq!(
            json,
            r#"{"bench":"uprobe","rows":[{"case":"count","site":"push","value":0.5,"unit":"ns"}]}"#
        );
    }
}
