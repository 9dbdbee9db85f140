//! Joins passes into one record. In each pass, every bench ran once, as a process of its own (`scripts/costs.sh`).
//!
//! Several passes are needed, because all rounds of a process share its addresses and calibration, and because the
//! machine's speed drifts over minutes. A joined row has the median of all passes. Its spread is the second largest
//! distance from the median, because another program may have disturbed the farthest pass. A row keeps each pass's
//! value, so that two rows can be compared pass by pass. Within a pass the drift is the same for both.

use serde_json::{Map, Value};

/// A row's measured fields, besides `spread`. Other fields say what was measured.
const NUMBERS: [&str; 3] = ["value", "waiting_percent", "asleep_percent"];

/// Joins files of passes, and writes the record `file`. Benches that no pass ran are kept from the old `file`.
pub fn join(file: &str, passes: &[&str]) -> Result<(), String> {
    let old = std::fs::read_to_string(file).map_or(Ok(Value::Null), |old| parsed(file, &old));
    let read = |path: &&str| {
        let text = std::fs::read_to_string(path).map_err(|why| format!("{path}: {why}"))?;
        parsed(path, &text)
    };
    let passes = passes.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let record = joined(&old?, &passes).ok_or("there is no pass")?;
    std::fs::write(file, lines(&record)).map_err(|why| format!("{file}: {why}"))
}

fn parsed(path: &str, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|why| format!("{path}: {why}"))
}

fn joined(old: &Value, passes: &[Value]) -> Option<Value> {
    let mut record = passes.last()?.clone();
    let benches = |run: &Value| run["benches"].as_object().cloned().unwrap_or_default();
    let mut all = benches(old);
    let run: Map<String, Value> = passes.iter().flat_map(benches).collect();
    for (name, mut bench) in run {
        let tables = passes.iter().map(|pass| &pass["benches"][&name]["table"]);
        let tables: Vec<&Value> = tables.filter(|table| table.is_object()).collect();
        bench["table"] = table(&tables);
        all.insert(name, bench);
    }
    record["benches"] = Value::Object(all);
    Some(record)
}

/// Keeps the notes that most passes have. Drops the printed text (`lines`).
fn table(passes: &[&Value]) -> Value {
    let list = |table: &Value, field: &str| table[field].as_array().cloned().unwrap_or_default();
    let (mut rows, mut notes): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    let every: Vec<Value> = passes
        .iter()
        .flat_map(|table| list(table, "rows"))
        .collect();
    for one in &every {
        if !rows.iter().any(|known| case(known) == case(one)) {
            let same = every.iter().filter(|other| case(other) == case(one));
            rows.push(row(one, &same.collect::<Vec<_>>()));
        }
    }
    for note in passes.iter().flat_map(|table| list(table, "notes")) {
        let with = passes
            .iter()
            .filter(|table| list(table, "notes").contains(&note));
        if !notes.contains(&note) && 2 * with.count() > passes.len() {
            notes.push(note);
        }
    }
    let mut table = passes.first().map_or(Value::Null, |first| (*first).clone());
    table["rows"] = rows.into();
    table["notes"] = notes.into();
    if let Some(fields) = table.as_object_mut() {
        fields.remove("lines");
    }
    table
}

fn case(row: &Value) -> Map<String, Value> {
    let mut fields = row.as_object().cloned().unwrap_or_default();
    fields.retain(|field, _| !["spread", "passes"].contains(&field.as_str()));
    fields.retain(|field, _| !NUMBERS.contains(&field.as_str()));
    fields
}

fn row(first: &Value, all: &[&Value]) -> Value {
    let mut joined = first.clone();
    let values = |field: &str| -> Vec<f64> {
        let of = |row: &&Value| row[field].as_f64().map(rounded);
        all.iter().filter_map(of).collect()
    };
    for field in NUMBERS {
        if let Some((median, _)) = median_and_spread(values(field)) {
            joined[field] = median.into();
        }
    }
    if let Some((_, spread)) = median_and_spread(values("value")).filter(|_| all.len() > 1) {
        joined["spread"] = rounded(spread).into();
        joined["passes"] = values("value").into();
    }
    joined
}

/// Rounds to six digits, because no bench is more exact.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Returns the median, and the second largest distance of a value from the median (of two values, the largest).
pub(crate) fn median_and_spread(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let median = (values[last / 2] + values[last.div_ceil(2)]) / 2.0;
    let mut distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
    distances.sort_by(f64::total_cmp);
    Some((median, distances[last.saturating_sub(1).max(last.min(1))]))
}

/// Formats one line for each bench, so that a change of one bench changes one line.
fn lines(record: &Value) -> String {
    let text = |value: &Value| value.to_string();
    let mut fields: Vec<String> = Vec::new();
    for (field, value) in record.as_object().into_iter().flatten() {
        let value = match (field.as_str(), value.as_object()) {
            ("benches", Some(benches)) => {
                let lines = benches
                    .iter()
                    .map(|(name, bench)| format!("{}: {bench}", text(&name.as_str().into())));
                format!("{{\n{}}}", lines.collect::<Vec<_>>().join(",\n"))
            }
            _ => text(value),
        };
        fields.push(format!("{}: {value}", text(&field.as_str().into())));
    }
    format!("{{{}}}\n", fields.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(value: f64, note: &str) -> Value {
        let rows = serde_json::json!([
            {"case": "bare", "threads": 1, "value": value, "spread": 0.1},
            {"case": "bare", "threads": 2, "value": 5.0, "spread": null},
        ]);
        let table = serde_json::json!({"bench": "lock", "rows": rows, "notes": ["seen", note], "lines": ["x"]});
        serde_json::json!({"cpus": 2, "benches": {"lock": {"command": "bench lock", "table": table}}})
    }

    /// Regression: the spread was that of one process, and six of ten values of a second process were outside it.
    #[test]
    fn a_rows_spread_reaches_all_passes_but_one() {
        let old = serde_json::json!({"benches": {"lock": 1, "scope": 2}});
        let passes = [pass(3.0, "busy"), pass(9.0, "idle"), pass(4.0, "idle")];
        let record = joined(&old, &passes).expect("passes");
        let table = &record["benches"]["lock"]["table"];
        let numbers = |row: &Value| [row["value"].as_f64(), row["spread"].as_f64()];
        assert_eq!(numbers(&table["rows"][0]), [Some(4.0), Some(1.0)]);
        assert_eq!(
            table["rows"][0]["passes"],
            serde_json::json!([3.0, 9.0, 4.0])
        );
        assert_eq!(numbers(&table["rows"][1]), [Some(5.0), Some(0.0)]);
        assert_eq!(table["rows"].as_array().map(Vec::len), Some(2));
        assert_eq!(table["notes"], serde_json::json!(["seen", "idle"]));
        assert!(table["lines"].is_null() && record["benches"]["scope"] == 2);
        let text = lines(&record);
        assert!(
            text.contains("\n\"lock\": {") && text.contains("\n\"scope\": 2"),
            "{text}"
        );
        assert_eq!(parsed("", &text), Ok(record));
        assert_eq!(joined(&old, &[]), None);
    }
}
