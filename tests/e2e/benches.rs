//! `tiptoe-dev bench` prints each row that this machine can measure, and a note for each missing row.

use serde_json::Value;
use tiptoe_tests::dev_command;
use tiptoe_tests::process::output;
use tiptoe_tests::skipped;

const HITS: [&str; 9] = [
    "bare",
    "count",
    "ring",
    "ring_callers",
    "sigtrap",
    "watch",
    "perf_record",
    "perf_record_callers",
    "gdb",
];
const SWITCHES: [&str; 4] = ["bare", "cpu_wide_4", "per_task_1", "per_task_4"];
const HOT: [&str; 3] = ["bare", "watch", "watch_unlimited"];
const WAYS: [&str; 3] = ["cpu_wide", "per_task", "ptrace"];
const THREADS: [u64; 3] = [1, 100, 2_000];
const TOOLS: [&str; 3] = ["perf_record", "perf_record_callers", "gdb"];

#[test]
#[ignore = "nightly: a bench"]
fn watching_is_measured_in_every_way() {
    let Some(_turn) = crate::watch::turn() else {
        return;
    };
    let mut bench = dev_command();
    bench.args(["bench", "watch", "--rounds", "1", "--ms", "1", "--json"]);
    let output = output(&mut bench);
    assert!(output.status.success(), "{output:?}");
    let table: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(table["bench"], "watch");
    let rows = table["rows"].as_array().expect("rows");
    let notes = table["notes"].to_string();
    let check = |case: &str, site: &str, threads: Option<u64>| {
        let is_it = |row: &&Value| {
            row["case"] == case && row["site"] == site && row["threads"].as_u64() == threads
        };
        let mut found = rows.iter().filter(is_it);
        if TOOLS.contains(&case) && notes.contains(&format!("skipped: {case} (")) {
            return skipped(case, "it is not installed");
        }
        let row = found
            .next()
            .unwrap_or_else(|| panic!("no {case}, {site}: {table:#}"));
        assert!(found.next().is_none(), "{case}, {site} twice: {table:#}");
        let value = row["value"].as_f64().expect("a number");
        // 0 means that no thread had to be stopped.
        let is_still = site == "still" && value == 0.0;
        assert!(value > 0.0 || is_still, "{row}");
        assert!(row["spread"].is_number(), "{row}");
        assert!(["ns", "ms"].contains(&row["unit"].as_str().expect("a unit")));
    };
    HITS.iter().for_each(|case| check(case, "hit", None));
    SWITCHES.iter().for_each(|case| check(case, "switch", None));
    HOT.iter().for_each(|case| check(case, "hot", None));
    for threads in THREADS {
        for way in WAYS {
            check(way, "set_up", Some(threads));
            check(way, "still", Some(threads));
        }
        check("idle", "still", Some(threads));
    }
}

#[test]
#[ignore = "nightly: a bench"]
fn an_interruption_is_measured_in_each_phase() {
    let Some(_turn) = crate::watch::turn() else {
        return;
    };
    let mut bench = dev_command();
    bench.args(["bench", "interrupt", "--rounds", "1", "--json"]);
    let output = output(&mut bench);
    assert!(output.status.success(), "{output:?}");
    let table: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let rows = table["rows"].as_array().expect("rows").iter();
    let name = |row: &Value, key: &str| row[key].as_str().expect("a word").to_owned();
    let cases: Vec<[String; 2]> = rows
        .map(|row| ["case", "site"].map(|key| name(row, key)))
        .collect();
    let all = [
        ["preparing", "probe"],
        ["counting", "probe"],
        ["counting", "lock"],
        ["counting", "watch"],
        ["counting", "stat"],
        ["ending", "probe"],
    ];
    assert_eq!(cases, all, "{table:#}");
}

#[test]
#[ignore = "nightly: a bench"]
fn switches_of_cgroups_are_simulated_in_both_ways() {
    let mut bench = dev_command();
    bench.args(["bench", "schedule", "--ms", "1", "--json"]);
    let output = output(&mut bench);
    assert!(output.status.success(), "{output:?}");
    let table: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let rows = table["rows"].as_array().expect("rows");
    let operations = |case: &str| {
        let is_it = |row: &&Value| row["case"] == case && row["unit"] == "PMU operations a switch";
        let row = rows.iter().find(is_it).expect(case);
        row["value"].as_f64().expect("a number")
    };
    for slots in [60, 4] {
        let ways =
            ["changed", "everything"].map(|way| operations(&format!("{way}, {slots} slots")));
        assert!(ways[0] < ways[1], "{ways:?} with {slots}");
    }
}
