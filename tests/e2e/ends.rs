//! What ends before its time and is told, such as traps that are hit too often; and what is not to be told.

use tiptoe_tests::{Probe, Report, command, target};

fn notes(report: &Report) -> String {
    report.value["notes"].to_string()
}

/// As [`Probe::run`], without `--budget off`.
fn within_budget(spec: &str, calls: &str) -> Report {
    let output = command()
        .args(["probe", spec, "--json", "--"])
        .arg(target("storm"))
        .arg(calls)
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    let json = said.lines().find(|line| line.starts_with('{'));
    Report::parse(json.unwrap_or_else(|| panic!("no report: {said}")))
}

#[test]
fn a_trap_that_is_hit_too_often_is_switched_off() {
    let report = within_budget("tiny", "1000000");
    let event = report.event("tiny").expect("the event").clone();
    assert!(event["count"].as_u64() < Some(1_000_000), "{event:#}");
    assert!(event["count"].as_u64() > Some(0), "{event:#}");
    let time = |key: &str| event[key].as_u64().expect("a time");
    assert!(
        time("time_running_ns") < time("time_enabled_ns"),
        "{event:#}"
    );
    let off = format!("tiny was switched off after {} hits", event["count"]);
    assert!(notes(&report).contains(&off), "{}", notes(&report));
}

#[test]
fn a_trap_stays_on_with_the_budget_off() {
    let run = Probe::new(&["tiny"]).run(&target("storm"), &["200000"]);
    run.good().assert_exact(&run.expected());
    assert!(!notes(run.good()).contains("switched off"));
}

#[test]
fn a_program_that_exits_has_not_run_another() {
    for _ in 0..60 {
        let run = Probe::new(&["tiny"]).run(&target("storm"), &["10"]);
        let notes = notes(run.good());
        assert!(!notes.contains("another program"), "{notes}");
    }
}

#[test]
fn a_filter_is_told_beside_the_cost() {
    let run = Probe::new(&["add"])
        .with(&["--filter", "arg1 == 77"])
        .run(&target("hot"), &["1", "1000"]);
    let unit = &run.good().value["cost"]["rejected_unit_ns"];
    assert!(unit.as_f64() > Some(0.0), "{unit}");
}

/// The kernel emulates `push` and a no-operation, makes a 5-byte one a call, and steps through the others.
#[test]
fn the_kernels_probes_are_priced_by_their_instructions() {
    let shapes = ["push", "nops", "endbr", "mov", "nop5"].map(|shape| format!("shape_{shape}"));
    let run = Probe::new(&shapes)
        .with(&["--via", "kernel"])
        .run(&target("shapes"), &["100"]);
    let report = run.good();
    let [push, nops, endbr, mov, nop5] = shapes.map(|shape| {
        let event = report.event(&shape).expect("it was probed");
        let cost = event["cost_ns"].as_f64().expect("a number");
        (cost / report.count(&shape) as f64).round() as u64
    });
    assert_eq!(push, nops, "{:#}", report.value);
    assert_eq!(endbr, mov, "{:#}", report.value);
    assert!(
        nop5 != push && push != mov && mov != nop5,
        "{nop5} {push} {mov}"
    );
}
