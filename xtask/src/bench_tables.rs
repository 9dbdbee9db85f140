//! Fills the tables of the page on costs from runs of `tiptoe-dev bench`, which `scripts/costs.sh` recorded in
//! `docs/costs`.
//!
//! A table begins with a comment that names the run and the bench, and selects rows from the bench's JSON:
//!
//! ```text
//! <!-- costs epyc lock
//! where threads=1
//! column nothing: case=bare
//! column traced: case=armed
//! less case=bare
//! row a wait that sleeps: site=wait
//! -->
//! ```
//!
//! A cell shows the recorded value that meets the conditions of `where`, of the cell's row and of its column.
//! `less` subtracts another recorded value, and `over` divides by another. The other value meets the conditions of
//! `less` or `over`, and the cell's conditions on all other fields. A cell is empty if no value meets its
//! conditions. It is an error if two values do.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::bench_passes::median_and_spread;
use crate::read;

/// The page with the tables.
pub const PAGE: &str = "docs/src/costs.md";
const BEGIN: &str = "<!-- costs ";
const END: &str = "<!-- end -->";
const NOT_RECORDED: &str = "Not recorded on this machine.\n";

/// The beginning of a bench's note if the machine was busy.
const DOUBT: &str = "not to be trusted: ";

type Conditions = Vec<(String, String)>;

#[derive(Clone, Copy, PartialEq)]
enum Comparison {
    None,
    Difference,
    Ratio,
}

struct Selection {
    common: Conditions,
    columns: Vec<(String, Conditions)>,
    rows: Vec<(String, Conditions)>,
    base: Conditions,
    comparison: Comparison,
}

/// Returns the page with its tables filled; fails as [`filled`] does.
pub fn page() -> Result<String, String> {
    let run = |machine: &str| read(&format!("docs/costs/{machine}.json"));
    filled(&read(PAGE), &run)
}

/// Returns a page with its tables filled; `run` returns a run by its name. Fails at the first table that cannot be
/// filled.
pub fn filled(page: &str, run: &dyn Fn(&str) -> String) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), page);
    while let Some(begin) = rest.find(BEGIN) {
        let (before, table) = rest.split_at(begin);
        let (head, after) = table
            .split_once("-->\n")
            .ok_or("a table's comment has no end")?;
        let (_, after) = after
            .split_once(END)
            .ok_or_else(|| format!("a table has no {END}: {head}"))?;
        let filled = table_of(head, run).map_err(|why| format!("{why}, in the table of {head}"))?;
        let _ = write!(out, "{before}{head}-->\n\n{filled}\n{END}");
        rest = after;
    }
    Ok(out + rest)
}

fn table_of(head: &str, run: &dyn Fn(&str) -> String) -> Result<String, String> {
    let (first, selection) = head.split_once('\n').ok_or("nothing is selected")?;
    let names: Vec<&str> = first.trim_start_matches(BEGIN).split(' ').collect();
    let [machine, bench @ ..] = names.as_slice() else {
        return Err("no run is named".to_owned());
    };
    let run: Value = serde_json::from_str(&run(machine)).map_err(|why| why.to_string())?;
    let selection = Selection::parse(selection)?;
    let Some(bench) = run["benches"].get(bench.join(" ")) else {
        return Ok(NOT_RECORDED.to_owned());
    };
    let rows = bench["table"]["rows"]
        .as_array()
        .ok_or("the bench has no rows")?;
    let table = selection.table(rows)?;
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let of_bench = |field: &str| word(bench.get(field).unwrap_or(&run[field]));
    let notes = bench["table"]["notes"].as_array().into_iter().flatten();
    let doubts = notes
        .filter_map(Value::as_str)
        .filter(|note| note.starts_with(DOUBT));
    let doubts: String = doubts
        .map(|doubt| format!("\nThe bench says: {doubt}.\n"))
        .collect();
    Ok(format!(
        "{table}\n`tiptoe-dev {}`, {}, {} CPUs, {}, commit {}\n{doubts}",
        word(&bench["command"]),
        word(&run["cpu"]),
        run["cpus"],
        of_bench("date"),
        of_bench("commit"),
    ))
}

struct Measured {
    name: String,
    value: f64,
    spread: f64,
    range: RangeInclusive<f64>,
}

/// Compares two runs of one machine, row by row: is each run's median within the other's interval? Returns whether this
/// holds for at least 9 of 10 rows, and a text that lists the others. Fails if a run cannot be read, or if no row is in both.
pub fn compare(one: &str, other: &str) -> Result<(bool, String), String> {
    let run = |machine: &str| read(&format!("docs/costs/{machine}.json"));
    compared(&run(one), &run(other))
}

fn compared(one: &str, other: &str) -> Result<(bool, String), String> {
    let [one, other] = [measured(one)?, measured(other)?];
    let (mut shared, mut text) = (0, String::new());
    let mut apart = 0;
    for row in &one {
        let Some(twin) = other.iter().find(|twin| twin.name == row.name) else {
            continue;
        };
        shared += 1;
        let is_within = |one: &Measured, other: &Measured| other.range.contains(&one.value);
        if !is_within(row, twin) || !is_within(twin, row) {
            apart += 1;
            let [value, again] =
                [row, twin].map(|row| with_spread(row.value, Some(row.spread), ""));
            let _ = writeln!(text, "{}: {value}, {again}", row.name);
        }
    }
    if shared == 0 {
        return Err("the runs share no row".to_owned());
    }
    let within = shared - apart;
    let _ = writeln!(
        text,
        "{within} of {shared} medians are within each other's intervals"
    );
    Ok((10 * within >= 9 * shared, text))
}

fn measured(run: &str) -> Result<Vec<Measured>, String> {
    let run: Value = serde_json::from_str(run).map_err(|why| why.to_string())?;
    let benches = run["benches"].as_object().ok_or("the run has no benches")?;
    let mut all = Vec::new();
    for (bench, recorded) in benches {
        for row in recorded["table"]["rows"].as_array().into_iter().flatten() {
            let (Some(value), Some(spread)) = (row["value"].as_f64(), row["spread"].as_f64())
            else {
                continue;
            };
            let fields = row.as_object().into_iter().flatten();
            let numbers = ["value", "spread", "passes"];
            let fields = fields.filter(|(field, _)| !numbers.contains(&field.as_str()));
            let fields: Vec<String> = fields.map(|(field, is)| format!("{field}={is}")).collect();
            let name = format!("{bench} {}", fields.join(" "));
            let passes = passes(row);
            let least = passes.iter().copied().reduce(f64::min);
            let most = passes.iter().copied().reduce(f64::max);
            all.push(Measured {
                name,
                value,
                spread,
                range: least.unwrap_or(value - spread)..=most.unwrap_or(value + spread),
            });
        }
    }
    Ok(all)
}

impl Selection {
    fn parse(text: &str) -> Result<Selection, String> {
        let mut parsed = Selection {
            common: Vec::new(),
            columns: Vec::new(),
            rows: Vec::new(),
            base: Vec::new(),
            comparison: Comparison::None,
        };
        for line in text.lines() {
            let (word, rest) = line
                .split_once(' ')
                .ok_or_else(|| format!("`{line}` is no selection"))?;
            let named = || -> Result<_, String> {
                let (name, conditions) = rest.rsplit_once(": ").ok_or("a name needs conditions")?;
                Ok((name.to_owned(), conditions_of(conditions)?))
            };
            match word {
                "where" => parsed.common = conditions_of(rest)?,
                "column" => parsed.columns.push(named()?),
                "row" => parsed.rows.push(named()?),
                "less" | "over" => {
                    parsed.base = conditions_of(rest)?;
                    parsed.comparison = match word {
                        "less" => Comparison::Difference,
                        _ => Comparison::Ratio,
                    };
                }
                _ => return Err(format!("`{word}` selects nothing")),
            }
        }
        Ok(parsed)
    }

    fn table(&self, rows: &[Value]) -> Result<String, String> {
        let (mut cells, mut units) = (Vec::new(), Vec::new());
        for (name, row) in &self.rows {
            let mut line = vec![name.clone()];
            for (_, column) in &self.columns {
                let conditions = [&self.common, row, column].map(Clone::clone).concat();
                let found = the_row(rows, &conditions)?;
                let base = match self.comparison {
                    Comparison::None => None,
                    _ => the_row(rows, &self.of_base(conditions))?,
                };
                line.push(found.map_or_else(String::new, |found| self.cell(found, base)));
                units.extend(found.and_then(|found| found["unit"].as_str()));
            }
            if line.iter().skip(1).all(String::is_empty) {
                return Err(format!("the row `{name}` is empty"));
            }
            cells.push(line);
        }
        units.sort_unstable();
        units.dedup();
        let unit = match (self.comparison, units.as_slice()) {
            (Comparison::Ratio, _) => "times",
            (_, [unit]) => unit,
            _ => return Err(format!("the cells have {units:?} as units")),
        };
        let heads = self.columns.iter().map(|(name, _)| name.as_str());
        let heads: Vec<&str> = [unit].into_iter().chain(heads).collect();
        let mut table = format!(
            "| {} |\n|{}\n",
            heads.join(" | "),
            "---|".repeat(heads.len())
        );
        for line in cells {
            let _ = writeln!(table, "| {} |", line.join(" | "));
        }
        Ok(table.replace("|  |", "| |").replace("|  |", "| |"))
    }

    fn of_base(&self, conditions: Conditions) -> Conditions {
        let is_changed = |field: &String| self.base.iter().any(|(other, _)| other == field);
        let kept = conditions
            .into_iter()
            .filter(|(field, _)| !is_changed(field));
        kept.chain(self.base.iter().cloned()).collect()
    }

    fn cell(&self, row: &Value, base: Option<&Value>) -> String {
        let numbers = |row: &Value| {
            let number = |field: &str| row[field].as_f64();
            (number("value").unwrap_or(f64::NAN), number("spread"))
        };
        let (value, spread) = numbers(row);
        let (other, its_spread) = base.map_or((f64::NAN, None), numbers);
        let compare: fn(f64, f64) -> f64 = match self.comparison {
            Comparison::None => return with_spread(value, spread, ""),
            Comparison::Difference => |row, base| row - base,
            Comparison::Ratio => |row, base| row / base,
        };
        let of_passes = || {
            let [row, base] = [row, base?].map(passes);
            let both = (row.len() == base.len()).then(|| row.iter().zip(&base));
            median_and_spread(both?.map(|(row, base)| compare(*row, *base)).collect())
        };
        let compared = compare(value, other);
        let of_both = |(one, its): (f64, f64)| match self.comparison {
            Comparison::Ratio => compared * (one / value).hypot(its / other),
            _ => one.hypot(its),
        };
        let (compared, spread) = match of_passes() {
            Some((median, spread)) => (median, Some(spread)),
            None => (compared, spread.zip(its_spread).map(of_both)),
        };
        let is_more = self.comparison == Comparison::Difference && compared > 0.0;
        with_spread(compared, spread, if is_more { "+" } else { "" })
    }
}

fn passes(row: &Value) -> Vec<f64> {
    let values = row["passes"].as_array().into_iter().flatten();
    values.filter_map(Value::as_f64).collect()
}

fn conditions_of(text: &str) -> Result<Conditions, String> {
    let condition = |part: &str| {
        let (field, value) = part.split_once('=')?;
        Some((field.to_owned(), value.to_owned()))
    };
    let parsed: Option<Conditions> = text.split("; ").map(condition).collect();
    parsed.ok_or_else(|| format!("`{text}` has a condition without `=`"))
}

fn the_row<'a>(rows: &'a [Value], conditions: &Conditions) -> Result<Option<&'a Value>, String> {
    let meets = |row: &&Value| {
        conditions.iter().all(|(field, value)| match &row[field] {
            Value::String(text) => text == value,
            other => value.parse().is_ok_and(|value: Value| value == *other),
        })
    };
    let mut found = rows.iter().filter(meets);
    match (found.next(), found.next()) {
        (first, None) => Ok(first),
        _ => Err(format!("several rows meet {conditions:?}")),
    }
}

/// Formats a number with the decimals that its spread needs. A number without a spread gets three digits.
fn with_spread(value: f64, spread: Option<f64>, sign: &str) -> String {
    let places = match spread.filter(|spread| *spread > 0.0) {
        Some(3.0..) => 0,
        Some(0.3..) => 1,
        Some(_) => 2,
        None if value.abs() >= 100.0 => 0,
        None if value.abs() >= 10.0 => 1,
        None => 2,
    };
    let value = format!("{sign}{}", thousands(&format!("{value:.places$}")));
    match spread {
        Some(spread) => format!("{value} ± {}", thousands(&format!("{spread:.places$}"))),
        None => value,
    }
}

fn thousands(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let digits = whole.trim_start_matches('-').len();
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        let left = whole.len() - at;
        if left % 3 == 0 && left < digits {
            out.push(',');
        }
        out.push(digit);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = r#"{"date": "2026-11-26", "cpu": "a CPU", "cpus": 2, "commit": "1b17560a", "benches": {"lock": {
        "command": "bench lock", "table": {"notes": [], "rows": [
        {"case": "bare", "site": "wait", "value": 1309.2, "spread": 3.4, "unit": "ns"},
        {"case": "armed", "site": "wait", "value": 1342.6, "spread": 4.1, "unit": "ns"},
        {"case": "bare", "site": "wake", "value": 6.648, "spread": 0.14, "unit": "ns"}]}}}}"#;

    fn fill(selection: &str) -> Result<String, String> {
        let page = format!(
            "A page.\n<!-- costs here lock\n{selection}\n-->\nold\n<!-- end -->\nIts end.\n"
        );
        filled(&page, &|_| RUN.to_owned())
    }

    const ROWS: &str = "column nothing: case=bare\ncolumn traced: case=armed\nrow a wait: site=wait\nrow a wake: site=wake";

    #[test]
    fn a_table_has_the_rows_of_the_run() {
        let page = fill(ROWS).expect("a table");
        let expected = "| ns | nothing | traced |\n|---|---|---|\n| a wait | 1,309 ± 3 | 1,343 ± 4 |\n\
            | a wake | 6.65 ± 0.14 | |\n\n`tiptoe-dev bench lock`, a CPU, 2 CPUs, 2026-11-26, commit 1b17560a\n\n<!-- end -->\nIts end.\n";
        assert!(page.ends_with(expected), "{page}");
        assert_eq!(filled(&page, &|_| RUN.to_owned()), Ok(page));
    }

    #[test]
    fn a_doubt_of_the_bench_is_below_its_table() {
        let doubt = r#""notes": ["not to be trusted: the machine was busy", "else"]"#;
        let run = RUN.replace(r#""notes": []"#, doubt);
        let page = format!("<!-- costs here lock\n{ROWS}\n-->\nold\n<!-- end -->\n");
        let page = filled(&page, &|_| run.clone()).expect("a page");
        let expected =
            "1b17560a\n\nThe bench says: not to be trusted: the machine was busy.\n\n<!--";
        assert!(page.contains(expected), "{page}");
    }

    #[test]
    fn two_runs_agree_if_nine_of_ten_medians_do() {
        assert_eq!(compared(RUN, RUN).map(|(agree, _)| agree), Ok(true));
        let other = RUN.replace("1309.2", "1312.7");
        let (agree, text) = compared(RUN, &other).expect("two runs");
        assert!(
            !agree && text.ends_with("2 of 3 medians are within each other's intervals\n"),
            "{text}"
        );
        assert!(
            text.contains(r#"case="bare" site="wait" unit="ns": 1,309 ± 3, 1,313 ± 3"#),
            "{text}"
        );
        assert!(compared(RUN, r#"{"benches": {}}"#).is_err());
    }

    #[test]
    fn a_bench_that_was_not_recorded_has_no_numbers() {
        let page = format!("<!-- costs here attach\n{ROWS}\n-->\nold\n<!-- end -->\n");
        let page = filled(&page, &|_| RUN.to_owned()).expect("a page");
        assert!(page.ends_with("-->\n\nNot recorded on this machine.\n\n<!-- end -->\n"));
        assert!(fill("column nothing").is_err());
    }

    #[test]
    fn a_difference_has_the_spread_of_both() {
        let selection = "column traced: case=armed\nless case=bare\nrow a wait: site=wait";
        assert!(fill(selection).is_ok_and(|page| page.contains("| a wait | +33 ± 5 |")));
        let selection = "column traced: case=armed\nover case=bare\nrow a wait: site=wait";
        assert!(fill(selection).is_ok_and(|page| {
            page.contains("| times | traced |\n|---|---|\n| a wait | 1.03 ± 0.00 |")
        }));
    }

    #[test]
    fn passes_are_compared_pass_by_pass() {
        let run = RUN.replacen(r#""unit""#, r#""passes": [1309.2, 1319.2], "unit""#, 1);
        let run = run.replacen(r#"4.1, "#, r#"4.1, "passes": [1342.6, 1352.7], "#, 1);
        let selection = "column traced: case=armed\nless case=bare\nrow a wait: site=wait";
        let page = format!("<!-- costs here lock\n{selection}\n-->\n<!-- end -->\n");
        let page = filled(&page, &|_| run.clone()).expect("a table");
        assert!(page.contains("| a wait | +33.45 ± 0.05 |"), "{page}");
    }

    #[test]
    fn a_selection_of_no_row_or_of_several_is_refused() {
        assert!(fill("column all: unit=ns\nrow a wait: site=wait").is_err());
        assert!(fill("column nothing: case=bare\nrow a hold: site=hold").is_err());
    }

    #[test]
    fn numbers_are_grouped_from_the_point() {
        let numbers = ["1", "123", "1234", "-123456.78", "-123"];
        assert_eq!(
            numbers.map(thousands),
            ["1", "123", "1,234", "-123,456.78", "-123"]
        );
    }
}
