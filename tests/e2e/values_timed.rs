//! `--by argN --latency`: times and ends of calls by value.

use std::collections::BTreeMap;

use serde_json::Value;
use tiptoe_tests::truth::{ReturnComparison, Truth};
use tiptoe_tests::{Probe, Process, Report, Site, installed, skipped, target};

const FUNCTIONS: [&str; 4] = ["works", "sinks", "many", "moves"];

fn probe(argument: &str) -> Probe {
    Probe::new(&FUNCTIONS).with(&["--latency", "--by", argument])
}

fn by(argument: &str) -> Report {
    let run = probe(argument).run(&target("timed_values"), &[]);
    let truth = Truth::parse(&String::from_utf8_lossy(&run.stdout));
    run.good().assert_returns(&truth, ReturnComparison::Enough);
    run.good().clone()
}

fn number(part: &Value, key: &str) -> u64 {
    part[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no `{key}`: {part:#}"))
}

fn timed(part: &Value) -> u64 {
    let counts = part["histogram"]["counts"].as_array().expect("buckets");
    let counts = counts.iter().filter_map(Value::as_u64).sum::<u64>();
    counts + number(&part["histogram"], "zero_count")
}

fn parts(report: &Report, function: &str) -> BTreeMap<String, Value> {
    let event = report.event(function).expect("counted");
    let parts = event["by"].as_array().expect("split").iter();
    let parts: BTreeMap<String, Value> = parts
        .map(|part| {
            (
                part["key"].as_str().expect("a key").to_owned(),
                part.clone(),
            )
        })
        .collect();
    for key in [
        "count",
        "returns",
        "left",
        "only_counted",
        "total_ns",
        "self_ns",
    ] {
        let sum: u64 = parts.values().map(|part| number(part, key)).sum();
        assert_eq!(sum, number(event, key), "{function}: {key}");
    }
    for part in parts.values() {
        assert_eq!(timed(part), number(part, "returns"), "{part:#}");
    }
    let longest = parts
        .values()
        .map(|part| number(&part["histogram"], "max_ns"));
    let longest = longest.max().expect("a part");
    assert_eq!(longest, number(&event["histogram"], "max_ns"));
    parts
}

fn ends(parts: &BTreeMap<String, Value>) -> BTreeMap<&str, [u64; 3]> {
    let ends = |part| ["count", "returns", "left"].map(|key| number(part, key));
    let parts = parts.iter();
    parts
        .map(|(key, part)| (key.as_str(), ends(part)))
        .collect()
}

fn works() -> BTreeMap<String, [u64; 3]> {
    let mut expected: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    let mut add = |value, calls: [u64; 3]| {
        let sums = expected.entry(value).or_default();
        for (sum, calls) in sums.iter_mut().zip(calls) {
            *sum += calls;
        }
    };
    (0..10).for_each(|value| add(value, [40, 40, 0]));
    (1..5).for_each(|thread| add(thread << 20, [100, 100, 0]));
    add(u64::MAX, [200, 0, 200]);
    add(3, [200, 0, 200]);
    add(1000 + libc::SIGUSR1 as u64, [4, 4, 0]);
    add(7, [1, 1, 0]);
    (0..20).for_each(|value| add(value << 20, [1, 1, 0]));
    // This call ended on another thread, so its end counts there.
    add(1 << 20, [1, 1, 0]);
    let key = |value: u64| match value as i64 {
        small @ -65_536..=65_536 => format!("arg0={small}"),
        _ => format!("arg0={value:#x}"),
    };
    let expected = expected.into_iter();
    expected.map(|(value, ends)| (key(value), ends)).collect()
}

fn check(report: &Report) {
    let expected = works();
    let expected = expected.iter().map(|(key, ends)| (key.as_str(), *ends));
    let works = parts(report, "works");
    assert_eq!(ends(&works), expected.collect());
    // Only this call sleeps.
    let longest = number(&works["arg0=7"]["histogram"], "max_ns");
    assert!(longest >= 20_000_000, "{longest}");
    let each = ["arg0=0", "arg0=1", "arg0=2", "arg0=3", "arg0=4"];
    let sinks = each.map(|key| (key, [400, 400, 0]));
    assert_eq!(ends(&parts(report, "sinks")), sinks.into());
    let moves = BTreeMap::from([("arg0=0x100000", [1, 1, 0])]);
    assert_eq!(ends(&parts(report, "moves")), moves);
}

#[test]
fn each_value_has_its_times_and_its_ends() {
    check(&by("arg0"));
}

#[test]
fn more_values_than_there_is_room_for_are_timed_together() {
    let report = by("arg0");
    let many = parts(&report, "many");
    let others = number(&many["(other values)"], "count");
    assert_eq!(many.len() as u64, 500 - others + 1);
    assert!(many.len() > 60 && many.len() <= 82, "{}", many.len());
    let notes = report.event("many").expect("counted")["notes"].to_string();
    assert!(notes.contains("room"), "{notes}");
}

#[test]
fn other_arguments() {
    let report = by("arg1");
    let works = parts(&report, "works");
    let expected = [
        ("arg1=0", [825, 825, 0]),
        ("arg1=1", [400, 0, 400]),
        ("arg1=2", [1, 1, 0]),
    ];
    assert_eq!(ends(&works), expected.into());
}

#[test]
fn values_of_what_a_filter_passes() {
    let probe = Probe::new(&["works"]).with(&["--latency", "--by", "arg1"]);
    let probe = probe.with(&["--filter", "arg0 == 3"]);
    let run = probe.run(&target("timed_values"), &[]);
    let expected = [("arg1=0", [40, 40, 0]), ("arg1=1", [200, 0, 200])];
    assert_eq!(ends(&parts(run.good(), "works")), expected.into());
}

#[test]
fn a_running_program_is_timed_by_value_again_and_again() {
    let program = target("timed_values");
    for _ in 0..2 {
        let mut process = Process::waiting(&program, &[]);
        let sites = FUNCTIONS.map(|name| Site::new(process.pid(), &program, name));
        let first = probe("arg0").attach(&[process.pid()]);
        sites.iter().for_each(Site::wait_probed);
        let idle = first.interrupt();
        assert_eq!(idle.count("works"), 0);
        sites.iter().for_each(Site::wait_original);
        let second = probe("arg0").attach(&[process.pid()]);
        sites.iter().for_each(Site::wait_probed);
        process.go();
        let (output, status) = process.finish();
        assert!(status.success(), "{status}");
        let report = second.finish();
        report.assert_returns(&Truth::parse(&output), ReturnComparison::Enough);
        check(&report);
    }
}

#[test]
fn within_a_budget_each_value_has_its_count() {
    let probe = Probe::within("0.001%", &["works"]).with(&["--latency", "--by", "arg1"]);
    let run = probe.run(&target("timed_values"), &[]);
    let report = run.good();
    let counts = parts_unchecked(report, "works");
    let expected = [("arg1=0", 825), ("arg1=1", 400), ("arg1=2", 1)];
    let expected = expected.map(|(key, count)| (key.to_owned(), count));
    assert_eq!(counts, expected.into());
}

fn parts_unchecked(report: &Report, function: &str) -> BTreeMap<String, u64> {
    let by = report.event(function).expect("counted")["by"].clone();
    let parts = by.as_array().expect("split").iter();
    let part = |part: &Value| {
        let key = part["key"].as_str().expect("a key").to_owned();
        (key, number(part, "count"))
    };
    parts.map(part).collect()
}

#[test]
fn all_functions_of_python3_by_value() {
    let Some(python) = installed("python3") else {
        return skipped("python3", "not installed");
    };
    let probe = Probe::new(&["*"]).with(&["--latency", "--by", "arg0"]);
    let run = probe.run(&python, &["-S", "-c", "print(sum(range(1000)))"]);
    let report = run.good();
    assert_eq!(run.stdout, b"499500\n");
    assert!(report.via("agent") > 20 * report.via("kernel"));
    let timed = report.events().iter();
    let timed = timed.filter(|event| event.get("histogram").is_some());
    assert!((200..=280).contains(&timed.count()));
    let room = "times by value have room for 280 functions: only its entries are counted";
    assert!(report.refusals()[room] > 1000);
}
