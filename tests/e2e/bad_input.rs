//! What cannot be done is said in one clear sentence, with status 2.

use std::process::Output;

use tiptoe_tests::{Probe, command, target};

fn refused(arguments: &[&str], words: &[&str]) {
    let output: Output = command().args(arguments).output().expect("tiptoe runs");
    let talk = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {talk}");
    for word in words {
        assert!(talk.contains(word), "{arguments:?}: no `{word}` in: {talk}");
    }
    assert!(output.stdout.is_empty(), "{arguments:?}: data on stdout");
}

#[test]
fn no_such_process() {
    refused(&["probe", "main", "-p", "4194303"], &["4194303"]);
}

#[test]
fn no_such_command() {
    refused(
        &["probe", "main", "--", "/nonexistent/program"],
        &["/nonexistent/program"],
    );
}

#[test]
fn no_such_symbol_names_the_nearest() {
    refused(
        &[
            "probe",
            "chose",
            "--",
            target("hot").to_str().expect("text"),
        ],
        &["chose", "choose"],
    );
}

#[test]
fn no_such_binary() {
    // It might have come later, so the command runs.
    let run = Probe::new(&["libnothing.so.9:f"]).run(&target("hot"), &[]);
    assert_eq!(run.status, 2, "{}", run.stderr);
    let said = "error: nothing that was loaded matches `libnothing.so.9:f`";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    assert!(!run.stdout.is_empty(), "the command has run");
}

#[test]
fn a_glob_that_matches_nothing() {
    refused(
        &["probe", "zzz*", "--", target("hot").to_str().expect("text")],
        &["zzz*"],
    );
}

#[test]
fn a_probe_on_data() {
    refused(
        &[
            "probe",
            "choices",
            "--",
            target("hot").to_str().expect("text"),
        ],
        &["choices"],
    );
}

#[test]
fn nothing_to_trace() {
    refused(&["probe", "main"], &["-p"]);
}

#[test]
fn a_filter_that_is_none() {
    refused(
        &[
            "probe",
            "add",
            "--filter",
            "arg9 >",
            "--",
            target("hot").to_str().expect("text"),
        ],
        &["filter"],
    );
}

#[test]
fn the_kernel_has_no_filters() {
    let program = target("hot");
    let arguments = [
        "probe",
        "add",
        "--via",
        "kernel",
        "--filter",
        "arg0 > 1",
        "--",
        program.to_str().expect("text"),
    ];
    refused(&arguments, &["filter"]);
}

/// The commonest slip: a library's function without the library.
#[test]
fn a_function_of_a_library_is_found_there() {
    let program = target("hot");
    let program = program.to_str().expect("text");
    refused(
        &["probe", "malloc", "--", program],
        &["no function `malloc`", "hint: there is `libc.so.6:malloc`"],
    );
    refused(
        &["probe", "libc.so.6", "--", program],
        &["`libc.so.6:FUNCTION`"],
    );
}

#[test]
fn a_ready_signal_to_nobody() {
    for instrument in [
        &["probe", "main"][..],
        &["lock"],
        &["watch", "hits"],
        &["stat"],
    ] {
        let never = ["--ready-fd", "1000", "-p", "1"];
        let said = [
            "--ready-fd 1000 cannot be written to",
            "hint: in a shell: --ready-fd 3 3>FILE",
        ];
        refused(&[instrument, &never].concat(), &said);
        refused(
            &[instrument, &["--ready-fd", "2", "-p", "1"]].concat(),
            &["--ready-fd <N>"],
        );
    }
}
