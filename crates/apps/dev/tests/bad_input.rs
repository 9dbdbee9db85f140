//! Tests that bad input is refused with exit status 2 and one line that says what failed.

use std::process::Command;

#[track_caller]
fn refuses(args: &[&str], what: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe-dev"));
    let output = command.args(args).output().expect("tiptoe-dev runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(output.stdout.is_empty());
    assert!(said.starts_with("error: ") && said.contains(what), "{said}");
}

#[test]
fn unknown_benches_and_bad_options_of_benches_are_refused() {
    refuses(&["bench", "nothing"], "no bench `nothing`");
    refuses(&["bench", "uprobe", "--rounds", "0"], "--rounds");
    refuses(
        &["bench", "breakpoint", "stress", "--slots", "0"],
        "--slots",
    );
}

#[test]
fn impossible_plans_are_refused() {
    let plan = |rest: &[&str], what| refuses(&[&["plan"], rest].concat(), what);
    plan(&[], "--event <EVENTS>");
    plan(&["-e", "cylces"], "no event 'cylces'");
    plan(
        &["-e", "{cycles,instructions"],
        "a brace or slash is not closed",
    );
    plan(&["-e", "cycles:q"], "no modifier 'q'");
    plan(
        &["-e", "cycles", "--for-each-cgroup", "0"],
        "1 to 100000 cgroups",
    );
    plan(
        &["-e", "cycles", "--for-each-cgroup", "a,,b"],
        "a name is missing",
    );
    plan(
        &["-e", "cycles", "--for-each-cgroup", "a,a"],
        "'a' is given twice",
    );
    plan(
        &["-e", "{cycles,instructions}", "--slots", "1"],
        "a group of 2 events for 1 slot",
    );
    plan(&["-e", "cycles", "--slots", "0"], "0 is not in 1..=1024");
    plan(&["-e", "cycles", "--time", "soon"], "not a time");
    plan(
        &["-e", "cycles", "--cpus", "4096", "--time", "1h"],
        "too many to simulate",
    );
    plan(
        &["-e", "cycles", "--trace", "/nonexistent"],
        "/nonexistent cannot be read",
    );
    plan(
        &["-e", "cycles", "--trace", "/dev/null"],
        "there is no time between two switches",
    );
    plan(
        &["-e", "cycles", "--trace", "/dev/null", "--cpus", "2"],
        "cannot be used with",
    );
}
