//! Bad input is refused with exit status 2, a line on what failed, and one on what to do.

use std::process::{Command, Output};

fn tiptoe(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe"));
    command.args(args).output().expect("tiptoe runs")
}

#[track_caller]
fn refuses(args: &[&str], what: &str) {
    let output = tiptoe(args);
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
    assert!(output.stdout.is_empty());
    assert!(
        lines[0].starts_with("error: ") && lines[0].contains(what),
        "{said}"
    );
    assert!(lines.len() == 2 && lines[1].starts_with("hint: "), "{said}");
}

#[test]
fn bad_specs_are_refused() {
    refuses(
        &["probe", "prog:", "-p", "1"],
        "'prog:': a function is missing (at character 6)",
    );
    refuses(&["probe", "f+zz", "-p", "1"], "not an offset");
    refuses(
        &["probe", "/bin/true", "--", "true"],
        "a path without ':FUNCTION'",
    );
    refuses(
        &["probe", "mem:stats.hits", "-p", "1"],
        "'mem:stats.hits' is an event of `tiptoe watch`",
    );
    refuses(
        &["probe", "f/latency/", "-p", "1"],
        "'latency' is not implemented yet",
    );
}

#[test]
fn bad_options_are_refused() {
    refuses(
        &["probe", "f", "-p", "1", "--filter", "size > 3"],
        "an argument (arg0 to arg5)",
    );
    refuses(
        &["probe", "f", "-p", "1", "--via", "magic"],
        "expected one of agent, kernel, auto",
    );
    refuses(
        &["probe", "f", "-p", "1", "--via", "kernel-task"],
        "works only with `tiptoe watch`",
    );
    refuses(
        &["probe", "f", "-p", "1", "--budget", "lots"],
        "not a budget",
    );
    refuses(
        &["probe", "f", "-p", "1", "--interval", "often"],
        "not a time",
    );
    for option in ["--duration", "--delay", "--interval"] {
        refuses(&["probe", "f", "-p", "1", option, "-1"], "not a time");
    }
    refuses(
        &["probe", "f", "-p", "1", "--top", "-1"],
        "not a whole number",
    );
    refuses(&["probe", "f", "-p", "1", "--nonsense"], "--nonsense");
    refuses(&["probe"], "required");
}

#[test]
fn options_that_no_event_can_serve_are_refused() {
    let refuses = |args: &[&str], what| refuses(&[&["probe", "-p", "1"], args].concat(), what);
    refuses(&["f", "--slower", "1ms"], "--slower without --latency");
    refuses(&["f", "--histograms"], "--histograms without --latency");
    refuses(
        &["f", "--latency", "--slower", "1"],
        "not the time of a call",
    );
    refuses(
        &["f", "--latency", "--slower", "0ms"],
        "not the time of a call",
    );
    refuses(&["f", "--count"], "unexpected argument '--count' found");
    refuses(
        &["f", "--latency", "--via", "kernel"],
        "--latency does not go with --via kernel",
    );
    refuses(
        &["f", "--under", "g", "--via", "kernel"],
        "--under does not go with --via kernel",
    );
    refuses(
        &["f", "--by", "arg0", "--via", "kernel"],
        "--by arg0 does not go with --via kernel",
    );
    refuses(&["f", "--by", "arg6"], "arg6");
    refuses(
        &["f", "--record", "--via", "kernel"],
        "--record does not go with --via kernel",
    );
    refuses(
        &["f", "--record", "--latency"],
        "cannot be used with '--latency'",
    );
    refuses(
        &["f", "--record", "--by", "arg1"],
        "--by arg1 does not go with --record",
    );
    refuses(
        &["uretprobe:f", "--record"],
        "which has no arguments for --record",
    );
    refuses(
        &["f", "--under", "prog:"],
        "--under 'prog:': a function is missing",
    );
    refuses(&["f", "--under", "g*"], "--under 'g*': not one function");
    refuses(&["f", "--under", "uretprobe:g"], "not one function");
    refuses(&["f+8", "--latency"], "'uprobe:f+0x8' is not an entry");
    refuses(
        &["uretprobe:f", "--latency"],
        "'uretprobe:f' is not an entry",
    );
    refuses(&["uretprobe:f+8"], "a return has no offset");
    refuses(
        &["uretprobe:f", "--filter", "arg0 > 3"],
        "which has no arguments for --filter",
    );
    refuses(
        &["uretprobe:f", "--by", "arg0"],
        "which has no arguments for --by arg0",
    );
}

#[test]
fn missing_and_reserved_targets_are_refused() {
    refuses(&["probe", "f"], "no process to trace");
    refuses(&["probe", "f", "-a"], "-a is not implemented yet");
    refuses(
        &["probe", "f", "--comm", "no/such/name"],
        "no running process is named",
    );
}

#[test]
fn an_unwritable_output_is_refused_before_the_command_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = folder.path().join("made");
    let made = made.to_str().expect("a path");
    refuses(
        &["probe", "f", "-o", "/nonexistent/r", "--", "touch", made],
        "cannot be written",
    );
    assert!(!std::path::Path::new(made).exists());
}

#[test]
fn doctor_prints_one_json_value() {
    let output = tiptoe(&["doctor", "--json"]);
    assert!(output.status.success());
    assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok());
}

#[test]
fn help_and_version_succeed() {
    for args in [&["--help"][..], &["--version"], &["probe", "--help"]] {
        let output = tiptoe(args);
        assert!(output.status.success() && output.stderr.is_empty());
        assert!(String::from_utf8_lossy(&output.stdout).contains("tiptoe"));
    }
}
