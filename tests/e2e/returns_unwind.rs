//! Unwinding, and programs that read their own stack, must work as without probes.

use tiptoe_tests::truth::{ReturnComparison, Truth, without_truth};
use tiptoe_tests::{Probe, Report, target, target_with};

use crate::returns::{ENDS, EVERY, EndsRequest, alone, text};

/// The entry point has no return address. The count of arguments in its place must not be replaced.
#[test]
fn where_a_stripped_program_begins() {
    let program = target_with("hot", &["-s"]).expect("it builds");
    let arguments = ["2", "1000"];
    let alone = alone(&program, &arguments);
    let run = Probe::new(&["*"])
        .with(&["--latency"])
        .run(&program, &arguments);
    let report = run.good();
    assert_eq!(text(&run.stdout), text(&alone.stdout));
    let refusals = report.refusals();
    let no_caller = |reason: &String| reason.starts_with("it has no caller to return to");
    assert!(refusals.keys().any(no_caller), "{refusals:?}");
}

#[test]
fn an_exception_that_is_not_caught() {
    let program = target("ret_throw");
    let alone = alone(&program, &["uncaught"]);
    let truth = Truth::parse(&text(&alone.stdout));
    for ask in ENDS {
        let run = ask.probe(&truth.names()).run(&program, &["uncaught"]);
        assert_eq!(run.status, 128 + libc::SIGABRT, "{}", run.stderr);
        assert_eq!(text(&run.stdout), text(&alone.stdout));
        ask.compare(
            &run.report.expect("a report all the same"),
            &truth,
            ReturnComparison::Enough,
        );
    }
}

#[test]
fn cancellation_at_any_instant() {
    for name in ["ret_cancel", "ret_cancel_cc"] {
        let program = target(name);
        let alone = alone(&program, &["storm"]);
        let truth = Truth::parse(&text(&alone.stdout));
        for ask in EVERY {
            let names: Vec<&str> = truth.names().into_iter().chain(["busy_one"]).collect();
            let run = ask.probe(&names).run(&program, &["storm"]);
            assert_eq!(text(&run.stdout), text(&alone.stdout), "{name} {ask:?}");
            ask.compare(run.good(), &truth, ReturnComparison::Enough);
            every_end_is_known(run.good(), "busy_one", ask);
        }
    }
}

pub fn every_end_is_known(report: &Report, function: &str, ask: EndsRequest) {
    assert!(report.entries(function) > 0, "{:#}", report.value);
    if ask == EndsRequest::Entries {
        return;
    }
    assert_eq!(report.counts_returns(function), ask == EndsRequest::Returns);
    let count = report.count_by_ends(function);
    assert_eq!(report.count(function), count, "{:#}", report.value);
}

#[test]
#[ignore = "nightly: long"]
fn samples_of_a_profiler_are_complete() {
    let program = target("ret_trace");
    for mode in ["profiled", "profiled_threads"] {
        let words = without_truth(&text(&alone(&program, &[mode]).stdout));
        for ask in EVERY {
            let some: &[&str] = &["nests", "looks", "tail_looks", "trapped"];
            for names in [some, &["*"], &["*", "libc.so.6:*"]] {
                let run = ask.probe(names).run(&program, &[mode]);
                let output = text(&run.stdout);
                assert_eq!(without_truth(&output), words, "{mode} {ask:?} {names:?}");
                let report = run.good();
                if names == some {
                    ask.compare(report, &Truth::parse(&output), ReturnComparison::Enough);
                }
            }
        }
    }
}
