//! The agent (tiptoe's library) patches some libc functions (hooks). Probes on these functions must count exactly
//! or be refused, and the hooks must still work.

use tiptoe_tests::{ExpectedCounts, Probe, Report, Run, WaitingTarget, target};

const FUNCTIONS: &[&str] = &[
    "clone",
    "execve",
    "prctl",
    "sigaction",
    "signalfd",
    "sigpending",
    "sigprocmask",
    "syscall",
    "unshare",
];

fn specs() -> Vec<String> {
    let spec = |function: &&str| format!("libc.so.6:{function}");
    FUNCTIONS.iter().map(spec).collect()
}

fn check(report: &Report, mut expected: ExpectedCounts) {
    let refusals = report.value["refusals"].as_array();
    for refusal in refusals.into_iter().flatten() {
        let reason = refusal["reason"].as_str().expect("a reason");
        assert!(reason.contains("own hook"), "{reason}");
        let event = refusal["event"].as_str().expect("an event");
        let function = event.rsplit(':').next().expect("a function");
        expected.0.remove(function);
    }
    assert!(expected.0.len() >= 7, "{:#}", report.value);
    assert_eq!(report.via("kernel"), 0, "{:#}", report.value);
    report.assert_exact(&expected);
}

fn run(options: &[&str]) -> Run {
    let run = Probe::new(&specs())
        .with(options)
        .run(&target("hooked"), &["20"]);
    run.good();
    run
}

#[test]
fn a_command_that_calls_hooked_functions() {
    let run = run(&[]);
    check(run.good(), run.expected());
}

#[test]
fn a_process_that_calls_hooked_functions() {
    let mut waiting = WaitingTarget::through(&["env"], &target("hooked"), &["20"]);
    let attached = Probe::new(&specs())
        .with(&["libc.so.6:*sig*"])
        .attach(&[waiting.pid]);
    attached.wait_ready();
    waiting.process.go();
    let expected = waiting.end();
    check(&attached.finish(), expected);
}

#[test]
fn the_kernel_counts_hooked_functions() {
    let run = run(&["--via", "kernel"]);
    run.good().assert_exact(&run.expected());
}
