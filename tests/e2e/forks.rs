//! The cost of forks of a traced program.

use tiptoe_tests::{Probe, Report, Waiting, target};

const FORKS: &str = "40";

fn has_forks(report: &Report) {
    let forks = &report.value["cost"]["forks"];
    assert_eq!(forks["count"].as_u64(), Some(40), "{:#}", report.value);
    assert!(forks["unit_ns"].as_f64() > Some(0.0), "{:#}", report.value);
}

/// Each fork copies the agent's mappings; the report did not include that cost.
#[test]
fn forks_are_part_of_the_cost() {
    for probe in [Probe::new(&["called"]), Probe::lock()] {
        let run = probe.run(&target("forks"), &[FORKS]);
        assert_eq!(run.status, 0, "{}", run.stderr);
        has_forks(run.good());
    }
    let waiting = Waiting::through(&["env"], &target("forks"), &[FORKS]);
    has_forks(&waiting.count(&Probe::new(&["called"]), &["called"]));
}

/// A report on a program without forks must have no such row.
#[test]
fn without_forks_none_is_priced() {
    let run = Probe::new(&["add"]).run(&target("hot"), &["2", "1000"]);
    assert!(run.good().value["cost"].get("forks").is_none());
}
