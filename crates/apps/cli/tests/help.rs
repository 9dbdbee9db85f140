//! Help must fit the narrowest usual terminal also where its width is unknown: in a pipe, or in a file.

use std::process::Command;

/// The columns of a terminal that is not wider.
const WIDTH: usize = 80;

fn help(words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe"));
    let output = command.args(words).output().expect("tiptoe runs");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Help had lines of 100 columns.
#[test]
fn no_line_of_help_is_longer_than_80_columns() {
    let commands = [
        "", "probe", "lock", "watch", "stat", "doctor", "bug", "generate",
    ];
    for command in commands {
        for form in ["-h", "--help"] {
            let words: Vec<&str> = command.split_whitespace().chain([form]).collect();
            let help = help(&words);
            let wide = help.lines().find(|line| line.chars().count() > WIDTH);
            assert_eq!(wide, None, "{command:?} {form}:\n{help}");
        }
    }
}
