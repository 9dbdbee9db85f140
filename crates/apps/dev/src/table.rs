//! Tables of results, as text and as JSON.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// The results of a bench. Serialized: `{"bench", "rows": […]}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(default)]
pub struct Table {
    /// The bench's name.
    pub bench: Cow<'static, str>,
    /// The numbers, as `perf bench` prints them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// The rows.
    pub rows: Vec<TableRow>,
    /// Remarks, for example on skipped cases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A number, and what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(default)]
pub struct TableRow {
    /// The case, such as `off` or `count`, or a binary.
    pub case: String,
    /// The measured site, such as the probed function's first instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The number of callers of the probed function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// The number of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// The number of CPUs, if fewer than threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// The number of probed functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<usize>,
    /// The number of mappings of the address space.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mappings: Option<usize>,
    /// How often the mappings change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes_per_s: Option<u32>,
    /// The percentage of debug register reservations that are for a CPU, not for a thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_targets: Option<u32>,
    /// The percentage of time in which threads waited for a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_percent: Option<f64>,
    /// The percentage of time in which threads slept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asleep_percent: Option<f64>,
    /// The median of the rounds' results.
    pub value: f64,
    /// Half the distance between the results' quartiles; in some simulations, half the range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The unit of `value` and `spread`.
    pub unit: Cow<'static, str>,
}

/// The headings of the columns. A column without values is omitted.
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
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.cells().to_vec()).collect();
        let table = tiptoe_report::table_lines(&HEADS, &rows);
        let mut lines = self.lines.iter().chain(&table);
        lines.try_for_each(|line| writeln!(f, "{line}"))?;
        self.notes
            .iter()
            .try_for_each(|note| writeln!(f, "note: {note}"))
    }
}

impl Table {
    /// Turns rows without a number into notes, because readers of rows expect numbers.
    pub(crate) fn keep_numbers(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let (numbers, others): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.value.is_finite());
        let note = |row: &TableRow| format!("no result: {}", row.name());
        self.notes.extend(others.iter().map(note));
        let finite = |number: Option<f64>| number.filter(|number| number.is_finite());
        self.rows = numbers;
        for row in &mut self.rows {
            row.spread = finite(row.spread);
            row.waiting_percent = finite(row.waiting_percent);
            row.asleep_percent = finite(row.asleep_percent);
        }
    }

    pub(crate) fn scattered(&self) -> Option<String> {
        const NAMED: usize = 3;
        let scatters = |row: &&TableRow| {
            row.spread
                .is_some_and(|spread| spread > row.value.abs() / 10.0)
        };
        let rows: Vec<String> = self
            .rows
            .iter()
            .filter(scatters)
            .map(TableRow::name)
            .collect();
        let more = rows.get(NAMED).map_or("", |_| ", …");
        let named = rows.iter().take(NAMED).map(String::as_str);
        let named = named.collect::<Vec<_>>().join(", ");
        let (count, all) = (rows.len(), self.rows.len());
        (count > 0)
            .then(|| format!("{count} of {all} rows scatter by more than a tenth: {named}{more}"))
    }
}

/// Formats a time and its spread, in a unit with at most four digits before the point.
fn scaled(value: f64, spread: Option<f64>, unit: &str) -> String {
    const UNITS: [&str; 4] = ["ns", "us", "ms", "s"];
    let (first, rest) = unit
        .split_once(' ')
        .map_or((unit, None), |(first, rest)| (first, Some(rest)));
    let known = UNITS.iter().position(|unit| *unit == first);
    let (mut by, mut last) = (1.0, known.unwrap_or(UNITS.len()));
    while value.abs() / by >= 10_000.0 && last + 1 < UNITS.len() {
        (by, last) = (by * 1_000.0, last + 1);
    }
    let unit = UNITS.get(last).unwrap_or(&first);
    let spread = spread.map_or(String::new(), |spread| format!(" ± {:.2}", spread / by));
    let rest = rest.map_or(String::new(), |rest| format!(" {rest}"));
    format!("{:.2}{spread} {unit}{rest}", value / by)
}

impl TableRow {
    fn name(&self) -> String {
        let site = self.site.iter().cloned();
        let threads = self.threads.map(|threads| format!("({threads} threads)"));
        let words = [self.case.clone()].into_iter().chain(site).chain(threads);
        words.collect::<Vec<String>>().join(" ")
    }

    pub(crate) fn new(case: impl Into<String>, values: &[f64], unit: &'static str) -> TableRow {
        let (value, spread) = median_and_spread(values);
        TableRow {
            case: case.into(),
            value,
            spread: Some(spread),
            unit: unit.into(),
            ..TableRow::default()
        }
    }

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

    pub(crate) fn at(self, site: impl Into<String>) -> TableRow {
        TableRow {
            site: Some(site.into()),
            ..self
        }
    }

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
            scaled(self.value, self.spread, &self.unit),
        ]
    }
}

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

pub(crate) fn range(values: &[f64]) -> (f64, f64) {
    let least = values.iter().copied().min_by(f64::total_cmp);
    let most = values.iter().copied().max_by(f64::total_cmp);
    (least.unwrap_or(f64::NAN), most.unwrap_or(f64::NAN))
}

/// Returns a 95% confidence interval of the median. Its ends are chosen by rank, because the values' distribution is
/// unknown.
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
    fn a_row_of_threads_that_share_cpus_names_the_cpus() {
        let cpus = crate::together::cpus();
        let row = |threads| TableRow::new("kernel", &[1.0], "us").of_threads(threads);
        assert_eq!((row(cpus).cpus, row(cpus + 1).cpus), (None, Some(cpus)));
    }

    #[test]
    fn every_result_is_a_number_that_can_be_read() {
        assert_eq!(
            scaled(13_798_131.0, Some(200_000.0), "ns"),
            "13.80 ± 0.20 ms"
        );
        assert_eq!(scaled(123_456.0, None, "ns a pair"), "123.46 us a pair");
        assert_eq!(scaled(9_999.0, None, "ns"), "9999.00 ns");
        assert_eq!(scaled(1e9, None, "M/s"), "1000000000.00 M/s");
        let mut table = Table {
            rows: vec![
                TableRow::new("measured", &[2.0, f64::INFINITY, 2.0, 2.0], "ns"),
                TableRow::new("refused", &[], "ns").at("push").of_threads(1),
            ],
            ..Table::default()
        };
        table.rows[0].spread = Some(f64::INFINITY);
        table.keep_numbers();
        assert_eq!(table.notes, ["no result: refused push (1 threads)"]);
        let text = format!("{table}{}", serde_json::to_string(&table).expect("JSON"));
        assert!(
            !["NaN", "inf", "null"]
                .iter()
                .any(|word| text.contains(word)),
            "{text}"
        );
        assert_eq!(table.scattered(), None);
    }

    #[test]
    fn rows_that_scatter_are_named() {
        let row = |case: &str, spread| TableRow {
            spread: Some(spread),
            value: -10.0,
            ..TableRow::new(case, &[1.0], "ns")
        };
        let table = Table {
            rows: vec![row("a", 1.1), row("b", 1.0), row("c", 5.0)],
            ..Table::default()
        };
        let note = "2 of 3 rows scatter by more than a tenth: a, c";
        assert_eq!(table.scattered().as_deref(), Some(note));
    }

    #[test]
    fn columns_without_values_are_not_shown() {
        let row = TableRow {
            case: "count".into(),
            depth: Some(5),
            value: 0.5,
            unit: "ns".into(),
            ..TableRow::default()
        };
        let table = Table {
            bench: "uprobe".into(),
            rows: vec![row],
            notes: vec!["x".into()],
            ..Table::default()
        };
        assert_eq!(
            table.to_string(),
            "case   depth    value\ncount      5  0.50 ns\nnote: x\n"
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        let row = TableRow {
            case: "count".into(),
            site: Some("push".into()),
            value: 0.5,
            unit: "ns".into(),
            ..TableRow::default()
        };
        let table = Table {
            bench: "uprobe".into(),
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
