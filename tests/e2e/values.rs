//! `--by argN`: calls by an argument's value.

use std::collections::BTreeMap;

use tiptoe_tests::{Probe, Report, target};

fn by(argument: &str, options: &[&str]) -> Report {
    let probe = Probe::new(&["few", "many", "signs", "full"]).with(&["--by", argument]);
    let run = probe.with(options).run(&target("values"), &[]);
    let report = run.good().clone();
    report.assert_exact(&run.expected());
    report
}

fn parts(report: &Report, function: &str) -> BTreeMap<String, u64> {
    let by = report.event(function).expect("counted")["by"].clone();
    let parts = by.as_array().expect("split").iter();
    let part = |part: &serde_json::Value| {
        let key = part["key"].as_str().expect("a key").to_owned();
        (key, part["count"].as_u64().expect("a count"))
    };
    parts.map(part).collect()
}

#[test]
fn each_value_is_counted_exactly() {
    let report = by("arg0", &[]);
    let mut expected: BTreeMap<String, u64> = (0..10)
        .map(|value| (format!("arg0={value}"), 400))
        .collect();
    expected.insert(format!("arg0={}", 1000 + libc::SIGUSR1), 80);
    assert_eq!(parts(&report, "few"), expected);
    let signs = [("arg0=-1", 3), ("arg0=0", 3), ("arg0=0x7fff12345678", 3)];
    let signs = signs.map(|(key, count)| (key.to_owned(), count));
    assert_eq!(parts(&report, "signs"), BTreeMap::from(signs));
}

#[test]
fn values_without_room_are_counted_together() {
    let report = by("arg0", &[]);
    let parts = parts(&report, "many");
    let others = parts["(other values)"];
    assert_eq!(parts.values().sum::<u64>(), 3000);
    assert_eq!(parts.len() as u64, 3000 - others + 1);
    assert!(parts.len() > 256 && parts.len() < 540, "{}", parts.len());
    let notes = report.event("many").expect("counted")["notes"].to_string();
    assert!(notes.contains("room"), "{notes}");
}

#[test]
fn five_of_256_values_found_no_room() {
    let report = by("arg0", &[]);
    let expected = (0..256).map(|value| (format!("arg0={value}"), 2));
    assert_eq!(parts(&report, "full"), expected.collect());
}

#[test]
fn other_arguments_and_filters() {
    let report = by("arg1", &[]);
    let few = parts(&report, "few");
    assert_eq!(few["arg1=0"], 1000);
    assert_eq!(few["arg1=1"], 1080);
    let probe = Probe::new(&["few"]).with(&["--by", "arg1", "--filter", "arg0 == 3"]);
    let run = probe.run(&target("values"), &[]);
    let few = parts(run.good(), "few");
    let expected = (0..4).map(|thread| (format!("arg1={thread}"), 100));
    assert_eq!(few, expected.collect());
}
