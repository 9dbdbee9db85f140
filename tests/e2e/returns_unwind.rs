//! Frames left by unwinding, and programs that read their own stack, work as without probes.

use std::path::{Path, PathBuf};

use tiptoe_tests::truth::{ReturnComparison, Truth, without_truth};
use tiptoe_tests::{Probe, Report, sampled, target, target_with};

use crate::returns::{ENDS, EVERY, EndsRequest, alone, check, modes, started, text};

const THROWS: &[&str] = &[
    "above",
    "below",
    "rethrown",
    "nested",
    "deep",
    "through_c",
    "kept",
    "threads",
    "fibers",
    "signalled",
    "everything",
];

fn thrower(flags: &[&str]) -> PathBuf {
    target_with("ret_throw", flags).unwrap_or_else(|log| panic!("{flags:?}: {log}"))
}

#[test]
fn exceptions_leave_probed_frames() {
    modes(&target("ret_throw"), THROWS);
}

/// libgcc's unwinder is in the program, where no hook knows it by its library.
#[test]
#[ignore = "nightly: one of five builds of one program"]
fn exceptions_with_a_statically_linked_unwinder() {
    modes(&thrower(&["-static-libgcc", "-static-libstdc++"]), THROWS);
}

#[test]
#[ignore = "nightly: one of five builds of one program"]
fn exceptions_in_a_stripped_program() {
    let flags = ["-static-libgcc", "-static-libstdc++", "-s", "-rdynamic"];
    check(&thrower(&flags), &["everything"]);
    check(&thrower(&["-s", "-rdynamic"]), &["everything"]);
}

/// The entry point has no caller: the words at its return address are the program's arguments, and must not be
/// replaced.
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
#[ignore = "nightly: one of five builds of one program"]
fn exceptions_in_other_builds() {
    let builds: &[&[&str]] = &[
        &["-no-pie", "-fno-pie"],
        &["-fcf-protection=full"],
        &["-O0"],
        &["-fomit-frame-pointer", "-Os"],
    ];
    for flags in builds {
        println!("{flags:?}");
        started(&thrower(flags), &["fibers"], ReturnComparison::Enough);
        started(&thrower(flags), &["through_c"], ReturnComparison::Enough);
    }
}

/// The program dies as without probes: of SIGABRT, with the same message and all frames.
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
fn panics_leave_probed_frames() {
    check(&target("ret_panic"), &[]);
}

const CANCELS: &[&str] = &["exit", "cond", "read", "pause", "test", "async", "main"];

/// C's cleanup handlers, which find their frames by address.
#[test]
#[ignore = "nightly: as threads_end_inside_cpp"]
fn threads_end_inside_c() {
    modes(&target("ret_cancel"), CANCELS);
}

/// C's cleanup handlers, found by unwinding.
#[test]
#[ignore = "nightly: one of five builds of one program"]
fn threads_end_inside_c_with_unwinding() {
    modes(
        &target_with("ret_cancel", &["-fexceptions"]).expect("it builds"),
        CANCELS,
    );
}

/// C++ destructors.
#[test]
fn threads_end_inside_cpp() {
    modes(&target("ret_cancel_cc"), CANCELS);
}

/// Threads are cancelled at any instruction of a probed function and its trampoline.
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

/// Asserts that all entries have an end, for programs that cannot count.
pub fn every_end_is_known(report: &Report, function: &str, ask: EndsRequest) {
    assert!(report.entries(function) > 0, "{:#}", report.value);
    if ask == EndsRequest::Entries {
        return;
    }
    assert_eq!(report.counts_returns(function), ask == EndsRequest::Returns);
    let count = report.count_by_ends(function);
    assert_eq!(report.count(function), count, "{:#}", report.value);
}

const VIEWS: &[&str] = &["backtrace", "symbols", "unwind", "third", "deep"];

#[test]
fn backtraces_of_a_program_are_unchanged() {
    modes(&target("ret_trace"), VIEWS);
}

/// The first `backtrace()` loads libgcc_s during the trace.
#[test]
fn backtraces_by_an_unwinder_that_is_loaded_later() {
    let program = target_with("ret_trace", &["-static-libgcc", "-static-libstdc++"]);
    modes(&program.expect("it builds"), VIEWS);
}

/// A timer's handler reads the stack at any instruction, also at tiptoe's.
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

const FORCED: &[&str] = &["end", "jumped", "refused", "many", "threads", "handled"];

/// Regression: a forced unwinding's stop function was also called for return thunks.
#[test]
fn a_stop_function_was_called_for_return_thunks() {
    modes(&target("ret_forced"), FORCED);
}

#[test]
#[ignore = "nightly: one of several builds of one program"]
fn stop_functions_with_a_statically_linked_unwinder() {
    let program = target_with("ret_forced", &["-static-libgcc", "-static-libstdc++"]);
    modes(&program.expect("it builds"), FORCED);
}

#[test]
#[ignore = "nightly: as backtraces_of_a_program_are_unchanged"]
fn rusts_own_backtraces() {
    check(&target("ret_backtrace"), &[]);
    everything(&target("ret_backtrace"), &[]);
}

/// Probes all functions of the program and its C library. Only output is compared, because their counts are
/// unknown.
pub fn everything(program: &Path, arguments: &[&str]) {
    println!("{} {arguments:?}", program.display());
    let alone = alone(program, arguments);
    // One run with the library is enough, because returns use the same code as times.
    let whole: [(EndsRequest, &[&str]); 3] = [
        (EndsRequest::Latency, &["*", "libc.so.6:*"]),
        (EndsRequest::Latency, &["*"]),
        (EndsRequest::Returns, &["*"]),
    ];
    for (ask, specs) in sampled(&whole) {
        let run = ask.probe(specs).run(program, arguments);
        assert_eq!(text(&run.stdout), text(&alone.stdout), "{ask:?} {specs:?}");
        run.good();
    }
}

#[test]
#[ignore = "nightly: all functions of many programs"]
fn all_functions_of_programs_that_unwind() {
    everything(&target("ret_throw"), &["everything"]);
    everything(&target("ret_throw"), &["fibers"]);
    everything(
        &thrower(&["-static-libgcc", "-static-libstdc++"]),
        &["everything"],
    );
    everything(&target("ret_panic"), &[]);
    everything(&target("ret_cancel_cc"), &["exit"]);
    VIEWS
        .iter()
        .for_each(|view| everything(&target("ret_trace"), &[view]));
}
