//! `--by`: each thread's, or thread name's, share of an event.

use std::collections::BTreeMap;

use serde_json::Value;
use tiptoe_tests::{Probe, Report, target};

fn parts(options: &[&str]) -> (Report, BTreeMap<String, Vec<Value>>) {
    let run = Probe::new(&["works"])
        .with(options)
        .run(&target("parts"), &[]);
    let report = run.good().clone();
    report.assert_exact(&run.expected());
    let mut parts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let by = report.event("works").expect("counted")["by"].clone();
    for part in by.as_array().expect("split") {
        let key = part["key"].as_str().expect("a key");
        let name = key.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        parts.entry(name.to_owned()).or_default().push(part.clone());
    }
    (report, parts)
}

fn numbers(parts: &[Value], key: &str) -> Vec<u64> {
    let number = |part: &Value| part[key].as_u64().expect("a number");
    parts.iter().map(number).collect()
}

fn adds_up(report: &Report, parts: &BTreeMap<String, Vec<Value>>, key: &str) {
    let sum: u64 = parts.values().flat_map(|parts| numbers(parts, key)).sum();
    assert_eq!(sum, report.number("works", key), "{key}");
}

fn timed(part: &Value) -> u64 {
    let counts = part["histogram"]["counts"].as_array().expect("buckets");
    let counts = counts.iter().filter_map(Value::as_u64).sum::<u64>();
    counts + part["histogram"]["zero_count"].as_u64().expect("a number")
}

#[test]
fn counts_of_threads_and_names() {
    let (_, threads) = parts(&["--by", "thread"]);
    assert_eq!(numbers(&threads["short"], "count"), [200, 100]);
    assert_eq!(numbers(&threads["long"], "count"), [400, 300]);
    let (_, names) = parts(&["--by", "comm"]);
    assert_eq!(numbers(&names["short"], "count"), [300]);
    assert_eq!(numbers(&names["long"], "count"), [700]);
}

#[test]
#[ignore = "nightly: asserts times"]
fn times_of_threads_and_names() {
    for (by, short, long) in [
        ("thread", &[200, 100][..], &[400, 300][..]),
        ("comm", &[300], &[700]),
    ] {
        let (report, parts) = parts(&["--latency", "--by", by]);
        assert_eq!(numbers(&parts["short"], "count"), short);
        assert_eq!(numbers(&parts["long"], "count"), long);
        for key in ["returns", "left", "inside", "total_ns", "self_ns"] {
            adds_up(&report, &parts, key);
        }
        for part in parts.values().flatten() {
            assert_eq!(timed(part), part["returns"].as_u64().expect("a number"));
        }
        let whole = report.event("works").expect("counted")["histogram"]["max_ns"].as_u64();
        let longest = parts.values().flatten();
        let longest = longest
            .map(|part| part["histogram"]["max_ns"].as_u64())
            .max();
        assert_eq!(longest, Some(whole), "{:#}", report.value);
    }
    let (report, parts) = parts(&["--latency", "--by", "thread"]);
    let left = parts.values().flat_map(|parts| numbers(parts, "left"));
    assert_eq!(left.collect::<Vec<_>>(), [1; 4], "{:#}", report.value);
}

/// Only the longest call sleeps, for 20 ms.
#[test]
#[ignore = "nightly: asserts a time"]
fn the_longest_call_is_that_of_its_thread() {
    for by in ["thread", "comm"] {
        let (report, parts) = parts(&["--latency", "--by", by]);
        let longest = |name: &str| parts[name][0]["histogram"]["max_ns"].as_u64();
        let whole = report.event("works").expect("counted")["histogram"]["max_ns"].as_u64();
        assert_eq!(longest("long"), whole);
        assert!(longest("short") < whole && whole > Some(20_000_000));
    }
}
