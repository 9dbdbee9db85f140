//! Help must fit into 80 columns even if the width is unknown, as in a pipe.

mod kept;

use std::process::Command;

use kept::check_screen;

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

fn block<'a>(help: &'a str, heading: &str) -> Vec<&'a str> {
    let mut lines = help.lines().skip_while(|line| *line != heading);
    lines.next();
    lines.take_while(|line| !line.is_empty()).collect()
}

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
        assert_eq!(block(&help, "Examples:").len(), 3, "{help}");
        let name = if command.is_empty() {
            "tiptoe"
        } else {
            command
        };
        check_screen(&format!("help/{name}.txt"), &help);
    }
}

#[test]
fn long_help_begins_with_the_examples_of_short_help() {
    for command in COMMANDS {
        let help = |form| help(&command.split_whitespace().chain([form]).collect::<Vec<_>>());
        let [short, long] = ["-h", "--help"].map(help);
        let all = block(&long, "Examples:");
        for example in block(&short, "Examples:") {
            let words = example.trim_start().split("  ").next().expect("a command");
            let is_same = |line: &&str| line.trim_start().starts_with(words);
            assert!(all.iter().any(is_same), "{example}: {long}");
        }
        let place = |text: &str| long.find(text).expect("part of the help");
        assert!(place("Examples:") < place("\nOptions:"), "{long}");
    }
}

#[test]
fn help_has_no_option_that_is_not_implemented() {
    for (command, options) in [
        (
            "probe",
            &["--all\n", "--all ", "kernel-task", "--count"][..],
        ),
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

#[test]
fn the_text_of_each_option_fits_its_command() {
    for (command, option, text) in [
        ("watch", "-p, --pid", "Watch in this running process"),
        (
            "watch",
            "--comm",
            "Watch in the running process of this name",
        ),
        ("watch", "--via", "agent, kernel, kernel-task or auto"),
        ("lock", "--via", "What traces: agent, kernel or auto"),
        ("lock", "--force", "Use the agent despite"),
        ("probe", "--via", "What counts: agent, kernel or auto"),
    ] {
        let help = help(&[command, "-h"]);
        let is_it = |line: &&str| line.trim_start().starts_with(option);
        let line = help.lines().find(is_it).expect(option);
        assert!(line.contains(text), "{command}: {line}");
    }
}

#[test]
fn long_help_explains_each_word_of_an_option() {
    for (command, words) in [
        ("probe", "thread comm arg0 scope"),
        ("lock", "lock callsite thread type scope process cgroup"),
        ("watch", "comm thread"),
        ("stat", "scope"),
    ] {
        let help = help(&[command, "--help"]);
        let by = help.split("--by <WHAT>").nth(1).unwrap_or_default();
        let by = by.split("\n  ").collect::<Vec<_>>();
        let end = by
            .iter()
            .position(|line| line.trim_start().starts_with("--"));
        let by = by[..end.unwrap_or(by.len())].join(" ");
        for word in words.split(' ') {
            assert!(
                by.contains(&format!("{word}:")) || by.contains(&format!("{word} ")),
                "{word}: {by}"
            );
        }
    }
}
