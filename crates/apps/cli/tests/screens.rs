//! `tiptoe --version --verbose` and `tiptoe bug` in 80 columns. Parts that depend on the machine or build are
//! removed.

mod kept;

use std::process::Command;

use kept::check_screen;

const WIDTH: usize = 80;

fn tiptoe(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiptoe"));
    let output = command.args(args).output().expect("tiptoe runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
}

fn check_width(shown: &str) {
    let wide = shown.lines().find(|line| line.chars().count() > WIDTH);
    assert_eq!(wide, None, "{shown}");
}

fn without_numbers(text: &str) -> String {
    let word = |word: &str| match word.contains(|c: char| c.is_ascii_digit()) {
        true => "…".to_owned(),
        false => word.to_owned(),
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(|one| line(one) + "\n").collect()
}

#[test]
fn the_verbose_version_looks_as_kept() {
    const OF_BUILD: [&str; 6] = [
        "commit",
        "target",
        "profile",
        "compiler",
        "features",
        "CPU features",
    ];
    let row = |line: &str| {
        let (name, value) = line.split_at_checked(19)?;
        let is_of_build = OF_BUILD.contains(&name.trim_end());
        let value = if is_of_build {
            "…".to_owned()
        } else {
            without_numbers(value)
        };
        Some(format!("{name}{}\n", value.trim_end()))
    };
    let shown = tiptoe(&["--version", "--verbose"]);
    check_width(&shown);
    let shown: String = shown
        .lines()
        .map(|line| row(line).unwrap_or_else(|| without_numbers(line)))
        .collect();
    check_screen("screens/version-verbose.txt", &shown);
}

#[test]
fn bug_looks_as_kept() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("report");
    let folder = folder.to_str().expect("text");
    let mut shown = tiptoe(&["bug", folder]).replace(folder, "report");
    check_width(&shown);
    let system = std::fs::read_to_string(format!("{folder}/system.txt")).expect("a report");
    let is_heading = |line: &&str| {
        let is_word = |c: char| c.is_ascii_uppercase() || c == ' ';
        !line.is_empty() && line.chars().all(is_word)
    };
    shown += "\nsystem.txt:\n";
    shown.extend(
        system
            .lines()
            .filter(is_heading)
            .map(|line| format!("{line}\n")),
    );
    check_screen("screens/bug.txt", &shown);
}
