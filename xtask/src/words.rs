//! Counts words of [`DIALECT`], and words that show reasons. The counts only show which texts to read again.

use std::collections::BTreeMap;
use std::fmt::Write as _;

const DIALECT: &[&str] = &[
    "told",
    "tells",
    "whoever",
    "stands",
    "lies at",
    "behind",
    "in front of",
    "none where",
    "none, where",
    "so many",
    "so often",
    "for so long",
    "apart",
    "as far as it goes",
    "at hand",
    "by now",
    "nobody",
    "nobody's",
    "somebody",
    "somebody's",
    "may be another's",
    "meanwhile",
    "what is asked for",
    "of which",
    "is gone",
    "are gone",
    "comes and goes",
    "came and went",
    "passed over",
    "takes down",
    "taken down",
    "notes down",
    "noted down",
];

const REASONS: &[&str] = &[
    "because",
    "so that",
    "must",
    "otherwise",
    "unless",
    "race",
    "races",
    "deadlock",
    "deadlocks",
    "overflow",
    "overflows",
    "invariant",
    "invariants",
    "torn",
    "use after free",
];

/// The most words of [`DIALECT`] in 1,000 words.
const MOST_DIALECT: f64 = 1.0;

/// The row of the documentation. The text of `--help` is in the crates' rows.
const PAGES: &str = "(pages)";
const MESSAGES: &str = "(messages)";

/// The counts of words of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WordCount {
    words: usize,
    dialect: usize,
    reasons: usize,
}

impl WordCount {
    /// Counts the comments of a source file.
    pub fn of_source(source: &str) -> Self {
        WordCount::of_words(&prose_words(&comments(source)))
    }

    fn of_messages(source: &str) -> Self {
        let product = source.split("#[cfg(test)]").next().unwrap_or_default();
        WordCount::of_words(&prose_words(&literals(product)))
    }

    fn of_page(page: &str) -> Self {
        WordCount::of_words(&prose_words(page))
    }

    fn of_words(words: &[String]) -> Self {
        WordCount {
            words: words.iter().filter(|word| !word.is_empty()).count(),
            dialect: occurrences(words, DIALECT),
            reasons: occurrences(words, REASONS),
        }
    }

    fn add(&mut self, other: Self) {
        self.words += other.words;
        self.dialect += other.dialect;
        self.reasons += other.reasons;
    }

    fn per_thousand(self, count: usize) -> f64 {
        count as f64 * 1000.0 / self.words.max(1) as f64
    }
}

/// Returns a line for each crate, pages and messages, and a sum.
pub fn table() -> String {
    let mut table = format!("{:>7} {:>8} {:>8}  crate\n", "words", "dialect", "reasons");
    for (name, count) in counts() {
        let [dialect, reasons] = [count.dialect, count.reasons].map(|of| count.per_thousand(of));
        let _ = writeln!(
            table,
            "{:>7} {dialect:>8.1} {reasons:>8.1}  {name}",
            count.words
        );
    }
    table
}

/// Returns the rows with more than [`MOST_DIALECT`].
pub fn too_much_dialect() -> Vec<String> {
    let rows = counts().into_iter();
    let rows = rows.map(|(name, count)| (name, count.per_thousand(count.dialect)));
    let bad = rows.filter(|(_, dialect)| *dialect > MOST_DIALECT);
    let words = "words of the list in xtask/src/words.rs";
    bad.map(|(name, dialect)| format!("{name}: {dialect:.1} of 1,000 are {words}"))
        .collect()
}

fn counts() -> BTreeMap<String, WordCount> {
    let mut counts: BTreeMap<String, WordCount> = BTreeMap::new();
    let mut add = |name: String, count| counts.entry(name).or_default().add(count);
    for path in crate::sources::tracked(&["*.rs", "*.c", "*.cc", "*.h"]) {
        let path = path.display().to_string();
        let Ok(source) = std::fs::read_to_string(crate::root().join(&path)) else {
            continue; // removed, and not yet committed
        };
        let count = WordCount::of_source(&source);
        if path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs") {
            add(MESSAGES.to_owned(), WordCount::of_messages(&source));
        }
        add(crate_of(&path), count);
        add("sum".to_owned(), count);
    }
    for page in crate::pages::all() {
        add(PAGES.to_owned(), WordCount::of_page(&crate::read(&page)));
    }
    counts
}

fn crate_of(path: &str) -> String {
    let depth = if path.starts_with("crates/") { 3 } else { 1 };
    path.split('/').take(depth).collect::<Vec<_>>().join("/")
}

fn occurrences(words: &[String], phrases: &[&str]) -> usize {
    let mut by_first: BTreeMap<&str, Vec<Vec<&str>>> = BTreeMap::new();
    for phrase in phrases {
        let mut parts = phrase.split([' ', ',']).filter(|part| !part.is_empty());
        let first = parts.next().expect("a phrase has words");
        by_first.entry(first).or_default().push(parts.collect());
    }
    let found_at = |at: usize| {
        let rest = |phrase: &&Vec<&str>| {
            let after = words[at + 1..].iter().take(phrase.len());
            after.eq(phrase.iter())
        };
        let phrases = by_first.get(words[at].as_str()).into_iter().flatten();
        phrases.filter(rest).count()
    };
    (0..words.len()).map(found_at).sum()
}

/// An empty line becomes an empty word, so that no phrase continues across it.
fn prose_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut is_example = false;
    for line in text.lines() {
        if line.contains("```") {
            is_example = !is_example;
        } else if line.is_empty() {
            words.push(String::new());
        } else if !is_example {
            // Text in backticks is omitted, because it names code.
            let prose = line.split('`').step_by(2);
            let is_part =
                |letter: char| letter.is_alphanumeric() || letter == '\'' || letter == '_';
            let of_line = prose.flat_map(|text| text.split(|letter| !is_part(letter)));
            let of_line = of_line.map(|word| word.trim_matches('\''));
            words.extend(
                of_line
                    .filter(|word| !word.is_empty())
                    .map(str::to_lowercase),
            );
        }
    }
    words
}

fn literals(source: &str) -> String {
    let (mut text, mut rest) = (String::new(), source);
    while let Some(at) = rest.find(['/', '"', '\'', 'r']) {
        rest = rest.split_at(at).1;
        let (comment, literal) = (comment_len(rest), literal_len(rest));
        let (part, after) = rest.split_at(comment.max(literal.unwrap_or(0)).max(1));
        if comment == 0 && literal.is_some() && part.trim().contains(' ') {
            for part in part.split('{') {
                text.push_str(part.split_once('}').map_or(part, |(_, after)| after));
                text.push(' ');
            }
            text.push_str("\n\n");
        }
        rest = after;
    }
    text
}

fn comments(source: &str) -> String {
    let mut text = String::new();
    let (mut rest, mut is_after_code) = (source, false);
    while let Some(letter) = rest.chars().next() {
        let len = comment_len(rest);
        if len > 0 {
            if is_after_code {
                text.push('\n');
            }
            let (comment, after) = rest.split_at(len);
            for line in comment.lines() {
                text.push_str(line.trim().trim_start_matches(['/', '*', '!']).trim());
                text.push('\n');
            }
            (rest, is_after_code) = (after, false);
        } else {
            is_after_code |= !letter.is_whitespace();
            rest = rest
                .split_at(literal_len(rest).unwrap_or(letter.len_utf8()))
                .1;
        }
    }
    text
}

fn comment_len(text: &str) -> usize {
    let end = |of: &str| text.find(of).map(|at| at + of.len());
    match text.as_bytes() {
        [b'/', b'/', ..] => text.find('\n').unwrap_or(text.len()),
        [b'/', b'*', ..] => end("*/").unwrap_or(text.len()),
        _ => 0,
    }
}

/// Returns the length of a literal with which `text` begins. Slashes in a literal begin no comment.
fn literal_len(text: &str) -> Option<usize> {
    let raw = text
        .strip_prefix('r')
        .map(|text| text.trim_start_matches('#'));
    if let Some(raw) = raw.filter(|raw| raw.starts_with('"')) {
        let hashes = text.len() - raw.len() - 1;
        let end = format!("\"{}", "#".repeat(hashes));
        let len = raw.get(1..)?.find(&end)?;
        return Some(1 + hashes + 1 + len + end.len());
    }
    let quote = text
        .chars()
        .next()
        .filter(|quote| ['"', '\''].contains(quote))?;
    let mut letters = text.char_indices().skip(1);
    let mut count = 0;
    while let Some((at, letter)) = letters.next() {
        if letter == quote {
            return Some(at + 1);
        }
        if letter == '\\' {
            letters.next()?;
        }
        count += 1;
        if quote == '\'' && letter != '\\' && count > 1 {
            return None; // a lifetime, or an apostrophe
        }
        if quote == '\'' && letter == '\n' {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_of_comments_only() {
        for (source, words, dialect, reasons) in [
            ("fn f() {} // nobody must", 2, 1, 1),
            (
                "/// It stands\n/// in front\n/// of it, so\n/// that\nfn f() {}",
                8,
                2,
                1,
            ),
            ("// in front\nfn f() {}\n// of it", 4, 0, 0),
            ("let url = \"http://nobody\"; // told", 1, 1, 0),
            ("let raw = r#\"\"// nobody\"#; // told", 1, 1, 0),
            (
                "let quote = '\"'; // told\nlet end = '\\''; // told",
                2,
                2,
                0,
            ),
            ("// `told` must", 1, 0, 1),
            ("fn f<'a>(x: &'a str) {} // told \"x", 2, 1, 0),
            ("/* a race,\n * unless */ int x; /* gone */", 4, 0, 2),
            (
                "/// Runs.\n/// ```\n/// let told = 1;\n/// ```\n/// It must.",
                3,
                0,
                1,
            ),
        ] {
            let expected = WordCount {
                words,
                dialect,
                reasons,
            };
            assert_eq!(WordCount::of_source(source), expected, "{source}");
        }
    }

    #[test]
    fn words_of_messages_are_of_sentences_only() {
        let count = |source: &str| {
            let count = WordCount::of_messages(source);
            (count.words, count.dialect)
        };
        assert_eq!(count("say(\"nobody was told\"); // told"), (3, 2));
        assert_eq!(count("key(\"told\"); say(\"a {told} b\")"), (2, 0));
        assert_eq!(count("\n#[cfg(test)]\nsay(\"nobody was told\")"), (0, 0));
        assert_eq!(count("say(\"it lies at\", \"so many\")"), (5, 2));
    }

    #[test]
    fn crates_are_named_by_their_folder() {
        assert_eq!(crate_of("crates/core/wire/src/ring.rs"), "crates/core/wire");
        assert_eq!(crate_of("tests/e2e/watch.rs"), "tests");
    }
}
