//! What ends before its time and is told, such as traps that are hit too often; and what is not to be told.

use tiptoe_tests::{Probe, Report, Waiting, command, target};

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
    let notes = notes(&report);
    let hits = notes
        .split_once("tiny was switched off after ")
        .and_then(|(_, behind)| behind.split_once(" hits")?.0.parse::<u64>().ok());
    let hits = hits.unwrap_or_else(|| panic!("it is not told: {notes}"));
    // Its one thread may stand in the trap right then.
    let counted = event["count"].as_u64().expect("a count");
    assert!((hits..=hits + 1).contains(&counted), "{counted}: {notes}");
}

#[test]
fn a_trap_stays_on_with_the_budget_off() {
    let run = Probe::new(&["tiny"]).run(&target("storm"), &["200000"]);
    run.good().assert_exact(&run.expected());
    assert!(!notes(run.good()).contains("switched off"));
}

/// The signal, and the CPU time that it had used, although nothing is left to ask.
#[test]
fn a_target_that_is_killed_is_told_with_its_cpu_time() {
    let mut waiting = Waiting::through(&["env"], &target("hot"), &["1", "0"]);
    let site = waiting.site("add");
    let attached = Probe::new(&["add"])
        .with(&["--duration", "60"])
        .attach(&[waiting.pid]);
    site.wait_probed();
    waiting.process.go();
    std::thread::sleep(std::time::Duration::from_millis(300));
    waiting.process.signal(libc::SIGKILL);
    drop(waiting);
    let report = attached.finish();
    assert!(notes(&report).contains("(SIGKILL)"), "{}", notes(&report));
    assert!(report.value["cpu_ns"].as_u64() > Some(0));
    assert!(report.value["cost"]["fraction"].as_f64() > Some(0.0));
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
