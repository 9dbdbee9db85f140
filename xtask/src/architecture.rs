//! Checks ARCHITECTURE.md's length, and that the files, functions and tests that it names exist.

use std::path::PathBuf;

use crate::sources::tracked;
use crate::{read, root};

const MOST_LINES: usize = 150;

/// Returns the faults.
pub fn faults() -> Vec<String> {
    let page = read("ARCHITECTURE.md");
    let tests = tests();
    faults_in(&page, &find, &|name| tests.contains(&format!("fn {name}(")))
}

fn tests() -> String {
    let files = tracked(&["tests/e2e/*.rs", "xtask/tests/*.rs", "crates/*/tests/*.rs"]);
    let texts = files.iter().map(|path| read(&path.display().to_string()));
    texts.collect::<Vec<_>>().concat()
}

fn find(path: &str) -> Option<String> {
    let groups = ["core", "code", "engines", "host", "apps"];
    let mut files = groups
        .map(|group| root().join("crates").join(group).join(path))
        .into_iter();
    let file: PathBuf = files.find(|file| file.is_file())?;
    std::fs::read_to_string(file).ok()
}

fn faults_in(
    page: &str,
    find: &dyn Fn(&str) -> Option<String>,
    is_test: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = page.lines().count();
    if lines > MOST_LINES {
        faults.push(format!("{lines} lines, at most {MOST_LINES} are allowed"));
    }
    let mut is_promise = false;
    for line in page.lines() {
        if line.starts_with("## ") {
            is_promise = line == "## Promises";
        }
        let pieces: Vec<&str> = line.split('`').collect();
        let mut file = None;
        for (index, piece) in pieces.iter().enumerate().skip(1).step_by(2) {
            let before = pieces.get(index - 1).copied().unwrap_or_default();
            if [".rs", ".c"].iter().any(|end| piece.ends_with(end))
                && piece.contains('/')
                && !piece.contains('*')
            {
                file = find(piece);
                if file.is_none() {
                    faults.push(format!("no file `{piece}`"));
                }
            } else if let Some(text) = file.as_ref().filter(|_| [" ", " and "].contains(&before)) {
                if !["(", "<"]
                    .iter()
                    .any(|end| text.contains(&format!(" {piece}{end}")))
                {
                    faults.push(format!("no function `{piece}` in its file"));
                }
            } else if is_promise && piece.contains('_') && !is_test(piece) {
                faults.push(format!("no test `{piece}`"));
            } else {
                file = None;
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_found() {
        let page = "`a/src/b.rs` `run` and `stop`, `other`\n`a/src/none.rs`\n## Promises\n1. A: `it_is`, `gone_test`";
        let find = |path: &str| (path == "a/src/b.rs").then(|| "pub fn run() {}".to_owned());
        assert_eq!(
            faults_in(page, &find, &|name| name == "it_is"),
            [
                "no function `stop` in its file",
                "no file `a/src/none.rs`",
                "no test `gone_test`"
            ]
        );
        let long = "line\n".repeat(MOST_LINES + 1);
        assert_eq!(faults_in(&long, &find, &|_| true).len(), 1);
    }
}
