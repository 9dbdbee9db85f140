//! Frames that no return ends, other stacks, and threads and processes that end inside a call.

use std::path::Path;

use tiptoe_tests::truth::{ReturnComparison, Truth, without_truth};
use tiptoe_tests::{Probe, Process, Report, Run, Site, each, scaled, target, target_with};

use crate::returns::{ENDS, EndsRequest, alone, sites, text};
use crate::returns_unwind::every_end_is_known;

fn storm(mode: &str, compare: impl Fn(EndsRequest, &Report, &Truth)) {
    let (program, signals) = (target("ret_storm"), scaled(200_000).to_string());
    let alone = alone(&program, &[mode, &signals]);
    let names = ["twice", "inner", "deep", "handles"];
    for ask in ENDS {
        let run = ask.probe(&names).run(&program, &[mode, &signals]);
        assert_eq!(rest(&run), without_truth(&text(&alone.stdout)));
        compare(ask, run.good(), &Truth::parse(&text(&run.stdout)));
    }
}

fn rest(run: &Run) -> String {
    without_truth(&text(&run.stdout))
}

#[test]
fn signal_handlers_run_probed_functions_at_any_instant() {
    each(&["returns", "altstack"], |mode| {
        storm(mode, |ask, report, truth| {
            ask.compare(report, truth, ReturnComparison::Enough)
        });
    });
}

/// A handler may jump between tiptoe's count and the program's, so the counts may differ by one for each signal.
#[test]
fn signal_handlers_jump_at_any_instant() {
    storm("jumps", |ask, report, truth| {
        for name in truth.names() {
            every_end_is_known(report, name, ask);
            let difference = report.entries(name).abs_diff(truth.0[name].entries);
            let limit = if name == "handles" {
                0
            } else {
                truth.0["handles"].entries
            };
            assert!(
                difference <= limit,
                "{name}: they differ by {difference}, {:#}",
                report.value
            );
        }
    });
}

fn left_behind(program: &Path, mode: &str, ask: EndsRequest) -> (Process, Report) {
    let functions = ["stays", "descends"];
    let mut process = Process::waiting(program, &[mode]);
    let sites = sites(&process, program, &functions);
    let tracer = ask.probe(&functions).attach(&[process.pid()]);
    sites.iter().for_each(Site::wait_probed);
    process.go();
    assert_eq!(process.line(), "inside");
    let report = tracer.interrupt();
    sites.iter().for_each(Site::wait_original);
    for (name, count) in [("stays", 4), ("descends", 204)] {
        every_end_is_known(&report, name, ask);
        assert_eq!(report.entries(name), count, "{:#}", report.value);
        assert_eq!(report.number(name, "inside"), count, "{:#}", report.value);
    }
    (process, report)
}

const LEAVES: &[&str] = &["returns", "throws", "jumps", "exits"];

#[test]
fn frames_outlive_the_tracer() {
    let program = target("ret_stay");
    each(LEAVES, |mode| {
        for ask in ENDS {
            let (mut process, _) = left_behind(&program, mode, ask);
            process.go();
            let (output, status) = process.finish();
            let is_good = status.success() && output.contains("expect stays 4");
            assert!(is_good, "{ask:?}: {status}: {output}");
        }
    });
}

#[test]
fn frames_of_an_earlier_trace_are_not_counted_by_a_later_one() {
    let program = target("ret_stay");
    each(LEAVES, |mode| {
        for ask in ENDS {
            let functions = ["stays", "descends"];
            let (mut process, _) = left_behind(&program, mode, ask);
            let sites = sites(&process, &program, &functions);
            let tracer = ask.probe(&functions).attach(&[process.pid()]);
            sites.iter().for_each(Site::wait_probed);
            process.go();
            let (output, status) = process.finish();
            assert!(status.success(), "{ask:?}: {status}: {output}");
            let report = tracer.finish();
            for name in functions {
                assert_eq!(report.count(name), 0, "{:#}", report.value);
                for end in ["returns", "left", "inside"] {
                    assert_eq!(report.number(name, end), 0, "{end}: {:#}", report.value);
                }
            }
        }
    });
}

fn refused(mode: &str, functions: &[&str], reason: &str) {
    let program = target("ret_twice");
    let libc = format!("libc.so.6:{mode}");
    let specs: Vec<&str> = functions.iter().copied().chain([libc.as_str()]).collect();
    let mut process = Process::waiting(&program, &[mode]);
    let sites = sites(&process, &program, functions);
    let tracer = EndsRequest::Latency.probe(&specs).attach(&[process.pid()]);
    sites.iter().for_each(Site::wait_probed);
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "{mode}: {status}");
    let (report, truth) = (tracer.finish(), Truth::parse(&output));
    let counted: Vec<&str> = truth.names();
    let counted = counted
        .into_iter()
        .filter(|name| report.event(name).is_some());
    for name in counted {
        assert_eq!(report.count(name), truth.0[name].entries, "{name}");
    }
    assert!(
        report.value.to_string().contains(reason),
        "{mode}: {:#}",
        report.value
    );
    let reported = truth
        .0
        .into_iter()
        .filter(|(_, calls)| calls.returns.is_some() && calls.entries > 0);
    let reported = Truth(reported.collect());
    if !reported.0.is_empty() {
        report.assert_returns(&reported, ReturnComparison::Enough);
    }
}

#[test]
fn functions_that_return_twice_are_refused() {
    for mode in ["_setjmp", "__sigsetjmp", "getcontext"] {
        refused(mode, &["keeps"], "twice");
    }
    refused("vfork", &["keeps"], "twice");
}

#[test]
fn functions_that_look_at_their_caller_are_refused() {
    const WATCHED: &str = "tiptoe itself hooks it";
    refused("dlsym", &["keeps", "next_tail", "next_inside"], WATCHED);
    refused("dlopen", &["opens_tail"], WATCHED);
}

/// Regression: the linkage table pushes two words before it enters the loader's resolver, which ends by a jump. One
/// word was taken for the return address.
#[test]
fn the_loaders_resolver_is_entered_without_a_return_address_on_top() {
    const RESOLVER: &str = "ld-linux-x86-64.so.2:_dl_runtime_resolve_*";
    const WHY: &str = "it is entered with more than a return address on the stack";
    let program = target_with("under", &["-Wl,-z,lazy"]).expect("it builds");
    let alone = alone(&program, &["plain"]);
    let timed = EndsRequest::Latency.probe(&[RESOLVER, "leaf"]);
    let run = timed.run(&program, &["plain"]);
    assert_eq!(text(&run.stdout), text(&alone.stdout));
    let report = run.good();
    assert!(report.refusals().keys().any(|why| why.starts_with(WHY)));
    let refused = |arguments: &[&str]| {
        let run = Probe::new(arguments).run(&program, &["plain"]);
        assert_eq!(run.status, 2, "{arguments:?}");
        assert!(run.stderr.contains(WHY), "{arguments:?}: {}", run.stderr);
    };
    refused(&[&format!("uretprobe:{RESOLVER}")]);
    refused(&["leaf", "--under", &RESOLVER.replace('*', "xsavec")]);
}
