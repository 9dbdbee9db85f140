//! If the kernel counts within a budget (limit of the cost), the program stays about as fast, and an incomplete
//! count is marked.

use std::process::Command;

use tiptoe_tests::{Probe, Process, Report, is_root, scaled, skipped, target, target_with};

/// If each call hit a uprobe, the calls would take 15 s (first instruction emulated) to 600 s (stepped).
const CALLS: u64 = 20_000_000;

fn is_bound(report: &Report, function: &str) -> bool {
    let event = report.event(function);
    event.is_some_and(|event| event["at_least"] == true)
}

fn check(report: &Report, calls: u64) {
    assert_eq!(report.via("kernel"), 2, "{:#}", report.value);
    assert!(is_bound(report, "add"), "{:#}", report.value);
    let count = report.count("add");
    assert!(0 < count && count * 10 < calls, "{count} of {calls}");
    assert_eq!(report.count("main"), 1, "{:#}", report.value);
    assert!(!is_bound(report, "main"), "{:#}", report.value);
    let notes = report.value["notes"].to_string();
    assert!(notes.contains("in windows"), "{notes}");
    assert_eq!(report.value["budget"], 0.01, "{:#}", report.value);
}

#[test]
fn a_program_stays_fast_if_the_kernel_counts_its_hottest_function() {
    if !is_root() {
        return skipped("uprobes", "needs root");
    }
    let calls = CALLS.to_string();
    let run = Probe::within("1%", &["add", "main"])
        .with(&["--via", "kernel"])
        .run(&target("hot"), &["1", &calls]);
    check(run.good(), CALLS);
    match target_with("hot", &["-static"]) {
        Err(log) => skipped("hot-static", &log),
        Ok(program) => {
            let run = Probe::within("1%", &["add", "main"]).run(&program, &["1", &calls]);
            check(run.good(), CALLS);
        }
    }
}

#[test]
fn the_kernels_count_within_the_budget_is_complete() {
    if !is_root() {
        return skipped("uprobes", "needs root");
    }
    let names = ["add", "down", "digits", "scale", "fill", "choose"];
    let run = Probe::within("100%", &names)
        .with(&["--via", "kernel"])
        .run(&target("hot"), &["2", &scaled(1_000).max(100).to_string()]);
    let report = run.good();
    report.assert_exact(&run.expected());
    assert!(names.iter().all(|name| !is_bound(report, name)));
}

#[test]
fn a_budget_for_waits_that_the_kernel_reports_was_ignored_silently() {
    if !is_root() {
        return skipped("futex tracepoints", "needs root");
    }
    let program = target("contended");
    for (budget, is_ignored) in [("1%", true), ("off", false)] {
        let arguments = ["mutex", "100", "seccomp", "wait"];
        let mut program = Process::start(Command::new(&program).args(arguments));
        assert_eq!(program.line(), "ready");
        let ours = Probe::lock_within(budget).attach(&[program.pid()]);
        ours.wait_ready();
        let report = ours.interrupt();
        let notes = report.value["notes"].to_string();
        assert!(notes.contains("runs under seccomp"), "{notes}");
        let said = "does not limit the kernel's futex tracepoints";
        assert_eq!(notes.contains(said), is_ignored, "{budget}: {notes}");
        program.go();
        program.close();
        assert!(program.finish().1.success());
    }
}
