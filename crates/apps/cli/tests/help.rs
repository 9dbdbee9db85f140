//! Help must fit the narrowest usual terminal even if the width is unknown, as in a pipe or a file.

use std::process::Command;

/// The columns of the narrowest usual terminal.
const WIDTH: usize = 80;

fn help(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe"));
    let output = command.args(words).output().expect("tiptoe runs");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

const COMMANDS: [&str; 8] = [
    "", "probe", "lock", "watch", "stat", "doctor", "bug", "generate",
];

/// Help had lines of 100 columns.
#[test]
fn no_line_of_help_is_longer_than_80_columns() {
    for command in COMMANDS {
        for form in ["-h", "--help"] {
            let words: Vec<&str> = command.split_whitespace().chain([form]).collect();
            let help = help(&words);
            let wide = help.lines().find(|line| line.chars().count() > WIDTH);
            assert_eq!(wide, None, "{command:?} {form}:\n{help}");
        }
    }
}

/// Returns the lines of a block of help, which ends at an empty line.
fn block<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let mut lines = help.lines().skip_while(|line| *line != heading);
    lines.next();
    lines.take_while(|line| !line.is_empty()).collect()
}

/// `-h` printed everything, over three screens.
#[test]
fn short_help_has_a_line_for_each_option_and_three_examples() {
    for command in COMMANDS {
        let words: Vec<&str> = command.split_whitespace().chain(["-h"]).collect();
        let help = help(&words);
        let options = block(&help, "Options:");
        assert!(options.len() > 1, "{help}");
        for line in options {
            let is_option = line.trim_start().starts_with('-');
            assert!(is_option, "{command:?}: `{line}` continues a line:\n{help}");
        }
        if !["bug", "generate"].contains(&command) {
            assert_eq!(block(&help, "Examples:").len(), 3, "{help}");
        }
    }
}

#[test]
fn long_help_begins_with_the_examples_of_short_help() {
    for command in ["probe", "lock", "watch", "stat"] {
        let [short, long] = ["-h", "--help"].map(|form| help(&[command, form]));
        let all = block(&long, "Examples:");
        for example in block(&short, "Examples:") {
            let command = example.trim_start().split("  ").next().expect("a command");
            let is_same = |line: &&str| line.trim_start().starts_with(command);
            assert!(all.iter().any(is_same), "{example}: {long}");
        }
        let place = |text: &str| long.find(text).expect("part of the help");
        assert!(place("Examples:") < place("\nOptions:"), "{long}");
    }
}

/// Help named options that are not implemented.
#[test]
fn help_has_no_option_that_is_not_implemented() {
    for (command, options) in [
        ("probe", &["--all\n", "--all ", "kernel-task"][..]),
        ("lock", &["kernel-task"]),
        ("watch", &["--all\n", "--all ", "--delay", "--interval"]),
    ] {
        for form in ["-h", "--help"] {
            let help = help(&[command, form]);
            for option in options {
                assert!(
                    !help.contains(option),
                    "{option} in {command} {form}:\n{help}"
                );
            }
        }
    }
}
