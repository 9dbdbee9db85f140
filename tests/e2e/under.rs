//! `--under FUNC`: only calls inside a call of FUNC count, however the call of FUNC ends.

use std::path::Path;

use tiptoe_tests::{ExpectedCounts, Probe, Process, Report, Site, sampled, target};

use crate::returns::{alone, text};

const MODES: [&str; 10] = [
    "plain",
    "throws",
    "jumps",
    "handler",
    "threads",
    "thread_ends",
    "starts",
    "forks",
    "coroutines",
    "travels",
];

const ASKS: [&[&str]; 3] = [
    &["leaf", "step"],
    &["leaf", "step", "--latency"],
    &["uretprobe:leaf", "uretprobe:step"],
];

fn below(ask: &[&str]) -> Probe {
    Probe::new(ask).with(&["--under", "serves"])
}

fn notes(report: &Report) -> String {
    report.value["notes"].to_string()
}

fn check(program: &Path, mode: &str) {
    let alone = text(&alone(program, &[mode]).stdout);
    let expected = ExpectedCounts::parse(&alone);
    for ask in ASKS {
        println!("{mode} {ask:?}");
        let run = below(ask).run(program, &[mode]);
        assert_eq!(text(&run.stdout), alone);
        run.good().assert_exact(&expected);
        let mut process = Process::waiting(program, &[mode]);
        let sites = ["leaf", "step", "serves"].map(|name| Site::new(process.pid(), program, name));
        let tracer = below(ask).attach(&[process.pid()]);
        sites.iter().for_each(Site::wait_probed);
        process.go();
        let (output, status) = process.finish();
        assert!(status.success(), "{status}");
        assert_eq!(output, alone);
        tracer.finish().assert_exact(&expected);
    }
}

#[test]
fn only_what_is_below_counts() {
    let program = target("under");
    sampled(&MODES).for_each(|mode| check(&program, mode));
}

#[test]
fn calls_that_began_before_the_trace_are_none_of_it() {
    let program = target("under");
    let mut process = Process::waiting(&program, &["spans"]);
    let sites = ["leaf", "step", "serves"].map(|name| Site::new(process.pid(), &program, name));
    let first = below(ASKS[0]).attach(&[process.pid()]);
    sites.iter().for_each(Site::wait_probed);
    process.go();
    assert_eq!(process.line(), "inside");
    let first = first.interrupt();
    assert!(first.count("step") > 0, "{:#}", first.value);
    assert!(notes(&first).contains("under:serves was called 3 times"));
    sites.iter().for_each(Site::wait_original);
    let second = below(ASKS[0]).attach(&[process.pid()]);
    sites.iter().for_each(Site::wait_probed);
    process.go();
    let (output, status) = process.finish();
    assert!(status.success(), "{status}");
    second
        .finish()
        .assert_exact(&ExpectedCounts::parse(&output));
}

#[test]
fn under_combines_with_filters_threads_and_globs() {
    let program = target("under");
    let filtered = below(&["step", "--filter", "arg0 > 1000000"]).run(&program, &["plain"]);
    assert_eq!(filtered.good().count("step"), 0);
    let run = below(&["*", "--by", "thread"]).run(&program, &["threads"]);
    let report = run.good();
    report.assert_exact(&run.expected());
    let parts = report.event("leaf").expect("counted")["by"].clone();
    let parts = parts.as_array().expect("split").iter();
    let counts: Vec<u64> = parts.filter_map(|part| part["count"].as_u64()).collect();
    assert_eq!(counts, [run.expected().0["leaf"] / 4; 4]);
    assert!(
        report
            .refusals()
            .keys()
            .any(|why| why.contains("`--under serves`"))
    );
}

/// Beyond its budget (limit of the cost) tiptoe only counts calls, but still follows calls of the outer function,
/// to know which calls are inside.
#[test]
fn the_outer_function_is_followed_under_any_budget() {
    let program = target("under");
    let ask = [ASKS[1], &["--under", "serves"]].concat();
    let run = Probe::within("0.0001", &ask).run(&program, &["threads"]);
    let report = run.good();
    report.assert_exact(&run.expected());
    let leaf = report.event("leaf").expect("counted");
    assert!(leaf["only_counted"].as_u64() > Some(0), "{leaf:#}");
}

#[test]
fn impossible_requests_are_refused() {
    let program = target("under");
    let refused = |arguments: &[&str], why: &str| {
        let run = Probe::new(arguments).run(&program, &["plain"]);
        assert_eq!(run.status, 2, "{arguments:?}");
        assert!(run.stderr.contains(why), "{arguments:?}: {}", run.stderr);
    };
    refused(&["leaf", "--under", "nobody"], "no function `nobody`");
    refused(
        &["leaf", "--under", "libc.so.6:_setjmp"],
        "it returns twice",
    );
    refused(
        &["leaf", "--under", "_start"],
        "it has no caller to return to",
    );
    refused(
        &["serves", "--under", "serves"],
        "counts the functions that it calls",
    );
    refused(
        &["leaf", "--under", "serves", "--via", "kernel"],
        "--via kernel",
    );
    let idle = Probe::new(&["leaf", "--under", "main"]);
    let mut process = Process::waiting(&program, &["plain"]);
    let sites = [Site::new(process.pid(), &program, "leaf")];
    let tracer = idle.attach(&[process.pid()]);
    sites.iter().for_each(Site::wait_probed);
    process.go();
    assert!(process.finish().1.success());
    let report = tracer.finish();
    assert_eq!(report.count("leaf"), 0);
    assert!(
        notes(&report).contains("main was not called"),
        "{}",
        notes(&report)
    );
}
