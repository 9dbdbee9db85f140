//! Timed calls in threads that may not read the time stamp counter (prctl PR_SET_TSC): tiptoe's readings must not
//! kill the program, and no call may be lost.

use tiptoe_tests::truth::Truth;
use tiptoe_tests::{Probe, Process, Report, Site, target};

use crate::returns::{EndsRequest, alone, sites, text};

const FUNCTIONS: [&str; 3] = ["outer", "inner", "leaf"];
const EVERY: &[&[&str]] = &[&[], &["--latency"], &["--record"]];

/// Asserts that each call is counted, with exactly one end. A return right after a fork is not counted, because the
/// fork takes the thread's slab away.
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

fn survives(mode: &str, asks: &[&[&str]]) {
    let program = target("ret_clock");
    let alone = alone(&program, &[mode]);
    assert!(alone.status.success(), "{mode}: {}", text(&alone.stderr));
    let truth = Truth::parse(&text(&alone.stdout));
    for ask in asks {
        println!("{mode} {ask:?}");
        let run = Probe::new(&FUNCTIONS).with(ask).run(&program, &[mode]);
        assert_eq!(text(&run.stdout), text(&alone.stdout), "{}", run.stderr);
        all_calls(run.good(), &truth, ask.first().unwrap_or(&""));
    }
}

/// Regression: the return of a timed call read the clock, and the program died.
#[test]
fn a_program_that_forbade_itself_the_clock_was_killed_by_a_return() {
    survives("inside", EVERY);
    survives("own", EVERY);
}

#[test]
fn each_thread_forbids_itself_the_clock_and_new_threads_inherit_that() {
    survives("threads", EVERY);
}

#[test]
fn a_forked_child_that_forbids_itself_the_clock_returns() {
    survives("forks", EVERY);
}

#[test]
fn a_thread_may_have_forbidden_itself_the_clock_before_its_first_call() {
    // In a way that no hook sees. Without `--record`, whose trampolines read the clock unchecked.
    survives("before", &[&[], &["--latency"]]);
}

/// After the detach, when no hook sees it.
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
