//! Timed calls in threads that may not read the time stamp counter (prctl PR_SET_TSC): tiptoe's readings must not
//! kill the program, and no call may be lost.

use std::path::Path;

use tiptoe_tests::truth::Truth;
use tiptoe_tests::{Probe, Process, Report, Site, each, target};

use crate::returns::{EndsRequest, alone, sites, text};

const FUNCTIONS: [&str; 3] = ["outer", "inner", "leaf"];

/// Asserts that each call is counted and has one end. A call that forks may count as left (ended without a return).
fn all_calls(report: &Report, truth: &Truth, ask: &str) {
    for name in FUNCTIONS {
        let entries = truth.0[name].entries;
        assert_eq!(
            report.count(name),
            entries,
            "{ask} {name}: {:#}",
            report.value
        );
        if ask == "--latency" {
            let ends = ["returns", "left", "inside", "only_counted"];
            let ends = ends.map(|end| report.number(name, end));
            assert_eq!(ends.iter().sum::<u64>(), entries, "{name}: {ends:?}");
            assert_eq!(ends[2], 0, "{name}: all ended");
        }
    }
}

pub fn survives(program: &Path, modes: &[&str]) {
    run(program, modes, &[&[], &["--latency"], &["--record"]]);
}

pub fn survives_unrecorded(program: &Path, modes: &[&str]) {
    run(program, modes, &[&[], &["--latency"]]);
}

fn run(program: &Path, modes: &[&str], asks: &[&[&str]]) {
    each(modes, |mode| {
        let alone = alone(program, &[mode]);
        assert!(alone.status.success(), "{}", text(&alone.stderr));
        let truth = Truth::parse(&text(&alone.stdout));
        for ask in asks {
            let run = Probe::new(&FUNCTIONS).with(ask).run(program, &[mode]);
            assert_eq!(text(&run.stdout), text(&alone.stdout), "{}", run.stderr);
            all_calls(run.good(), &truth, ask.first().unwrap_or(&""));
        }
    });
}

/// After the detach no hook sees that the clock is forbidden.
#[test]
fn calls_that_outlive_the_tracer_read_no_clock() {
    let program = target("ret_clock");
    let mut process = Process::waiting(&program, &["outlived"]);
    let sites = sites(&process, &program, &FUNCTIONS);
    let tracer = EndsRequest::Latency
        .probe(&FUNCTIONS)
        .attach(&[process.pid()]);
    sites.iter().for_each(Site::wait_probed);
    process.go();
    assert_eq!(process.line(), "inside");
    let report = tracer.interrupt();
    sites.iter().for_each(Site::wait_original);
    assert_eq!(report.number("outer", "inside"), 1, "{:#}", report.value);
    process.go();
    let (output, status) = process.finish();
    assert!(
        status.success() && output.contains("expect leaf 100"),
        "{status}: {output}"
    );
}
