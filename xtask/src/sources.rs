//! Rules on sources: attributes, length, forbidden words.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::layers::CrateLayer;
use crate::{read, root};

/// A longer file does more than one job, and must be split.
pub const MAX_LINES: usize = 500;

/// Returns the required attributes that crates lack.
pub fn missing_attributes(rows: &[CrateLayer]) -> Vec<String> {
    rows.iter()
        .flat_map(|row| {
            let text = door(row);
            [
                (row.forbids_unsafe, "#![forbid(unsafe_code)]"),
                (row.is_no_std, "#![no_std]"),
            ]
            .into_iter()
            .filter(move |(promised, attribute)| *promised && !has(&text, attribute))
            .map(|(_, attribute)| format!("{} lacks {attribute}", row.folder))
        })
        .collect()
}

/// `#![no_std]` may be conditional, because unit tests link std.
fn has(text: &str, attribute: &str) -> bool {
    let inner = attribute.trim_start_matches("#![").trim_end_matches(']');
    text.lines().map(str::trim).any(|line| {
        line == attribute
            || (line.starts_with("#![cfg_attr(not(") && line.ends_with(&format!(", {inner})]")))
    })
}

fn door(row: &CrateLayer) -> String {
    let folder = format!("crates/{}/src", row.folder);
    let library = format!("{folder}/lib.rs");
    let is_library = root().join(&library).exists();
    read(&if is_library {
        library
    } else {
        format!("{folder}/main.rs")
    })
}

/// Returns the files longer than [`MAX_LINES`], except `exceptions`.
pub fn too_long(exceptions: &[&str]) -> Vec<String> {
    tracked(&["*.rs", "*.c", "*.cc", "*.h", "*.S", "*.sh"])
        .into_iter()
        .filter(|path| {
            !exceptions
                .iter()
                .any(|exception| path == Path::new(exception))
        })
        .filter_map(|path| {
            let lines = std::fs::read_to_string(root().join(&path))
                .ok()?
                .lines()
                .count();
            (lines > MAX_LINES).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect()
}

/// Code that writes to stderr.
pub const WAYS_TO_STDERR: [&str; 5] = ["eprint!", "eprintln!", "dbg!", "stderr()", "STDERR_FILENO"];

/// Code that may open a target's file by its name, which may lead to a pipe, a device, or out of the target's root.
pub const WAYS_TO_A_TARGETS_FILES: [&str; 3] = ["map_files", "\"root\"", "/root/"];

/// Code that makes a note (a statement in the report) from a sentence. A note must have a kind instead.
pub const SENTENCES_FOR_NOTES: [&str; 5] = [
    "notes.push(format!",
    "notes.push(\"",
    "note(&format!",
    "note(format!",
    "let note = format!",
];

/// Returns the lines of code with one of `texts`, except in `allowed` files.
pub fn lines_with(texts: &[&str], allowed: &[&str]) -> Vec<String> {
    let files = tracked(&["crates/*/src/*.rs"]);
    let others = files.iter().map(|path| path.display().to_string());
    others
        .filter(|path| !allowed.contains(&path.as_str()))
        .flat_map(|path| {
            let found = lines_of(&read(&path), texts);
            found.into_iter().map(move |line| format!("{path}: {line}"))
        })
        .collect()
}

fn lines_of(source: &str, texts: &[&str]) -> Vec<String> {
    let lines = source.lines().map(str::trim);
    lines
        .filter(|line| !line.starts_with("//"))
        .filter(|line| texts.iter().any(|text| line.contains(text)))
        .map(str::to_owned)
        .collect()
}

/// Returns the tracked files that match a pattern.
pub fn tracked(patterns: &[&str]) -> Vec<PathBuf> {
    let output = Command::new("git")
        .arg("ls-files")
        .args(patterns)
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_stderr_is_found() {
        for way in [
            "std::eprintln!(\"x\");",
            "eprint!(\"x\");",
            "dbg!(x);",
            "io::stderr().lock();",
        ] {
            assert_eq!(
                lines_of(&format!("fn f() {{\n    {way}\n}}"), &WAYS_TO_STDERR),
                [way]
            );
        }
        assert!(lines_of("/// `eprintln!` panics\nprintln!();", &WAYS_TO_STDERR).is_empty());
    }

    #[test]
    fn a_sentence_for_a_note_is_found() {
        for line in [
            "session.notes.push(format!(\"{pid} ended\"));",
            "observer.note(&format!(\"{pid} ended\").into());",
            "self.notes.push(\"it ended\".into());",
        ] {
            assert_eq!(lines_of(line, &SENTENCES_FOR_NOTES), [line]);
        }
        let kind = "notes.push(StatNote::SwitchCostUnknown.into());";
        assert!(lines_of(kind, &SENTENCES_FOR_NOTES).is_empty());
    }
}
