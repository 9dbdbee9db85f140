//! Only a terminal gets colours, unless `--color` says otherwise; JSON never does.

use std::process::{Command, Output};

const TIPTOE: &str = env!("CARGO_BIN_EXE_tiptoe");

/// Variables that decide on colours. They are unset, because a test runner may set some: `CI` allows colours on any
/// terminal.
const DECIDE: [&str; 4] = ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"];

fn without_colors_decided(command: &mut Command) {
    DECIDE.iter().for_each(|name| {
        command.env_remove(name);
    });
}

fn is_colored(output: &Output) -> bool {
    output.stdout.contains(&0x1b) || output.stderr.contains(&0x1b)
}

fn piped(line: &str) -> Output {
    let mut command = Command::new(TIPTOE);
    without_colors_decided(&mut command);
    command.args(line.split(' '));
    command.output().expect("tiptoe runs")
}

fn on_a_terminal(line: &str, variable: (&str, &str)) -> Output {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{TIPTOE} {line}"), "/dev/null"]);
    without_colors_decided(&mut command);
    command.env("TERM", "xterm");
    command.env(variable.0, variable.1);
    command.output().expect("script is installed")
}

#[test]
fn no_color_is_obeyed_on_a_terminal() {
    let none = ("TIPTOE_TEST", "");
    for (line, variable, expected) in [
        ("probe f", none, true),
        ("probe f", ("NO_COLOR", "1"), false),
        ("probe f", ("NO_COLOR", ""), true),
        ("probe f", ("TERM", "dumb"), false),
        ("probe f --color never", none, false),
        ("--color never --help", none, false),
        ("probe f --color always", ("NO_COLOR", "1"), true),
        ("doctor", none, true),
        ("doctor", ("NO_COLOR", "1"), false),
        ("doctor --json", none, false),
    ] {
        let output = on_a_terminal(line, variable);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            is_colored(&output),
            expected,
            "{line}, {variable:?}: {said}"
        );
    }
}

#[test]
fn a_pipe_has_colours_only_with_always() {
    for (line, expected) in [
        ("probe f", false),
        ("probe f --color auto", false),
        ("probe f --color always", true),
        ("probe f --color=always", true),
        ("doctor", false),
        ("doctor --color always", true),
        // This `--color` is an argument of the command `true`.
        ("stat -e page-faults true --color always", false),
    ] {
        let output = piped(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(is_colored(&output), expected, "{line}: {said}");
    }
}

#[test]
fn json_has_no_colours() {
    let output = piped("stat --json -o - -e page-faults --color always -- true");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.stdout.starts_with(b"{") && !output.stdout.contains(&0x1b),
        "{said}"
    );
}
