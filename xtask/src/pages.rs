//! Checks README's length and numbers, and links.

use std::path::Path;

use crate::sources::tracked;
use crate::{read, root};

/// A new user must be able to read README in one go.
pub const MOST_LINES: usize = 150;
/// Tables of numbers belong in docs/src/costs.md.
pub const MOST_NUMBERS: usize = 25;

const PAGES: [&str; 4] = [
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "SECURITY.md",
];

const LINKS: [(&str, &[char]); 5] = [
    ("](", &[')', ' ', '#']),
    ("]: ", &[' ', '#']),
    ("src=\"", &['"', '#']),
    ("href=\"", &['"', '#']),
    ("{{#include ", &['}', ':']),
];

/// Returns the limits that README exceeds.
pub fn too_long() -> Vec<String> {
    too_long_in(&read("README.md"))
}

fn too_long_in(page: &str) -> Vec<String> {
    let (lines, numbers) = (page.lines().count(), numbers(page));
    let by_lines = (lines > MOST_LINES)
        .then(|| format!("README.md: {lines} lines, at most {MOST_LINES} are allowed"));
    let by_numbers = (numbers.len() > MOST_NUMBERS).then(|| {
        let (count, list) = (numbers.len(), numbers.join(" "));
        format!("README.md: {count} numbers, at most {MOST_NUMBERS} are allowed: {list}")
    });
    by_lines.into_iter().chain(by_numbers).collect()
}

/// Returns all pages for users.
pub fn all() -> Vec<String> {
    let book = tracked(&["docs/src/*.md"]);
    let book = book.iter().map(|path| path.display().to_string());
    PAGES.into_iter().map(str::to_owned).chain(book).collect()
}

/// Returns links to missing files.
pub fn broken_links() -> Vec<String> {
    all()
        .into_iter()
        .flat_map(|page| {
            let targets = broken_in(&page, &read(&page)).into_iter();
            targets.map(move |target| format!("{page}: {target}"))
        })
        .collect()
}

fn broken_in(page: &str, text: &str) -> Vec<String> {
    let folder = root().join(Path::new(page).parent().unwrap_or(Path::new("")));
    let is_file = |target: &str| !target.starts_with('/') && folder.join(target).exists();
    let targets = prose(text).into_iter().flat_map(|line| targets(&line));
    targets.filter(|target| !is_file(target)).collect()
}

fn targets(line: &str) -> Vec<String> {
    let of_kind = |(opening, ends): (&str, &[char])| {
        let is_link = opening != "]: " || line.starts_with('[');
        let after = line.split(opening).skip(1).filter(move |_| is_link);
        let targets = after.filter_map(|rest| rest.split(ends).next().map(str::to_owned));
        targets.collect::<Vec<_>>()
    };
    let targets = LINKS.into_iter().flat_map(of_kind);
    let is_elsewhere = |target: &String| target.contains("://") || target.starts_with("mailto:");
    targets
        .filter(|target| !target.is_empty() && !is_elsewhere(target))
        .collect()
}

fn numbers(page: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_alphanumeric() || "-_.,".contains(letter);
    let mut numbers = Vec::new();
    for line in prose_with_code(page) {
        let text = line.split("](").enumerate().map(|(at, part)| match at {
            0 => part,
            _ => part.split_once(')').map_or("", |(_, rest)| rest),
        });
        let words = text.flat_map(|part| part.split(|letter| !is_part(letter)));
        let words = words.map(|word| word.trim_matches(['-', '.', ',']));
        let begins = |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit());
        numbers.extend(words.filter(begins).map(str::to_owned));
    }
    numbers
}

/// Returns the lines without fenced blocks, comments and code.
pub(crate) fn prose(page: &str) -> Vec<String> {
    let without_code = |line: &str| line.split('`').step_by(2).collect();
    let lines = prose_with_code(page);
    lines.into_iter().map(without_code).collect()
}

/// Returns the lines without fenced blocks and comments.
pub(crate) fn prose_with_code(page: &str) -> Vec<&str> {
    let mut is_fenced = false;
    page.lines()
        .filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_fenced ^= is_fence;
            !is_fence && !is_fenced && !line.starts_with("<!--")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_readme_is_found() {
        let faults = |page: String| too_long_in(&page).len();
        assert_eq!(faults("x\n".repeat(MOST_LINES)), 0);
        assert_eq!(faults("x\n".repeat(MOST_LINES + 1)), 1);
        assert_eq!(faults("1 ".repeat(MOST_NUMBERS)), 0);
        assert_eq!(faults("1 ".repeat(MOST_NUMBERS + 1)), 1);
        let both = "1\n".repeat(MOST_LINES + 1);
        assert_eq!(too_long_in(&both).len(), 2);
    }

    #[test]
    fn numbers_are_of_prose_only() {
        for (page, found) in [
            (
                "11.6 ns, 0.2 to 20 us (1%).",
                vec!["11.6", "0.2", "20", "1"],
            ),
            ("1,024 functions, and -3.", vec!["1,024", "3"]),
            ("Linux on x86-64, `arg0`, Apache-2.0", vec![]),
            ("[two 2](file-3.md#4), 5", vec!["2", "5"]),
            ("```\n$ tiptoe 6\n```\n7", vec!["7"]),
            ("<!-- 8 -->\n`--budget 9`", vec!["9"]),
        ] {
            assert_eq!(numbers(page), found, "{page}");
        }
    }

    #[test]
    fn a_link_to_no_file_is_found() {
        for (page, text, broken) in [
            ("README.md", "[a](docs/src/probe.md)", vec![]),
            (
                "README.md",
                "[a](docs/src/none.md)",
                vec!["docs/src/none.md"],
            ),
            (
                "README.md",
                "[a](b.md), ![c](d.svg \"e\")",
                vec!["b.md", "d.svg"],
            ),
            ("README.md", "[`a`](b.md)", vec!["b.md"]),
            ("README.md", "[a]: b.md", vec!["b.md"]),
            ("README.md", "<img src=\"b.svg\">", vec!["b.svg"]),
            ("README.md", "[a](/etc/passwd)", vec!["/etc/passwd"]),
            (
                "README.md",
                "[a](https://b.c/d) [e](#f) [g](LICENSE-MIT#h)",
                vec![],
            ),
            ("README.md", "`[a](b.md)`\n```\n[a](b.md)\n```", vec![]),
            ("docs/src/x.md", "[a](probe.md#b) [c](../book.toml)", vec![]),
            ("docs/src/x.md", "[a](README.md)", vec!["README.md"]),
            (
                "docs/src/x.md",
                "{{#include ../../ARCHITECTURE.md}}",
                vec![],
            ),
            (
                "docs/src/x.md",
                "{{#include ../NONE.md}}",
                vec!["../NONE.md"],
            ),
        ] {
            assert_eq!(broken_in(page, text), broken, "{page}: {text}");
        }
    }
}
