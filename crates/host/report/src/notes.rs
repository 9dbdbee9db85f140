//! The notes of a report. Warnings are first, similar notes are together, and of many similar ones only the first few
//! are printed.
//!
//! A session has notes as sentences, which another version of tiptoe may have phrased differently. So their kind is
//! derived from their words: two notes are of one kind if they differ only in the middle, where names are, or in
//! numbers.

use crate::number::grouped;
use crate::{Options, printable};

/// The number of notes of one kind that are printed.
const SHOWN: usize = 3;
/// Words that make a note a warning: the report's numbers lack something, or mean something else.
const WARNINGS: [&str; 25] = [
    "not counted",
    "not recorded",
    "not seen",
    "not covered",
    "no room",
    "lost",
    "missed",
    "missing",
    "unknown",
    "switched off",
    "rested",
    "lower bound",
    "too low",
    "or not at all",
    "another tracer",
    "was killed",
    "was not called",
    "ended after",
    "matched nothing",
    "nothing was counted",
    "may be another",
    "may be to another",
    "may have been reused",
    "cost excludes",
    "in windows",
];
/// Words that make a note no warning, because every trace ends during some waits.
const USUAL: &str = "not over when the trace ended";

/// The notes that are printed while the trace runs: of similar ones only the first few, because the report repeats
/// all.
#[derive(Debug, Default)]
pub struct LiveNotes(Vec<(String, usize)>);

impl LiveNotes {
    /// Returns the line for a note; `None` if enough similar ones were printed.
    pub fn line(&mut self, note: &str) -> Option<String> {
        let all = &mut self.0;
        let alike = |known: &(String, usize)| is_alike(&words(&known.0), &words(note));
        let at = all.iter().position(alike).unwrap_or_else(|| {
            all.push((note.to_owned(), 0));
            all.len() - 1
        });
        let count = &mut all[at].1;
        *count += 1;
        let label = label(note);
        match *count {
            ..=SHOWN => Some(format!("{label}{note}")),
            count if count == SHOWN + 1 => Some(format!(
                "{label}… more like these are not printed one by one"
            )),
            _ => None,
        }
    }
}

/// Returns the lines of the notes.
pub(crate) fn lines(notes: &[String], options: &Options) -> Vec<String> {
    let (warnings, others): (Vec<&String>, Vec<&String>) =
        notes.iter().partition(|note| is_warning(note));
    let kinds = by_kind(&warnings).into_iter().chain(by_kind(&others));
    let lines = kinds.flat_map(|notes| {
        let label = label(notes[0]);
        let shown = match notes.len() {
            len if options.all_notes || len == SHOWN + 1 => len,
            len => len.min(SHOWN),
        };
        let more = (notes.len() > shown).then(|| {
            let more = grouped((notes.len() - shown) as u64);
            format!("{label}… and {more} more like these: `-v` prints them")
        });
        let printed = notes[..shown]
            .iter()
            .map(|note| label.to_owned() + &printable(note));
        printed.chain(more).collect::<Vec<_>>()
    });
    lines.flat_map(|line| options.sentence(&line)).collect()
}

fn label(note: &str) -> &'static str {
    match is_warning(note) {
        true => "warning: ",
        false => "note: ",
    }
}

fn is_warning(note: &str) -> bool {
    !note.contains(USUAL) && WARNINGS.iter().any(|words| note.contains(words))
}

/// Returns the notes by kind, in the order of the first of each.
fn by_kind<'a>(notes: &[&'a String]) -> Vec<Vec<&'a String>> {
    let mut kinds: Vec<(Vec<&str>, Vec<&String>)> = Vec::new();
    for note in notes {
        let words = words(note);
        match kinds.iter_mut().find(|(first, _)| is_alike(first, &words)) {
            Some((_, all)) => all.push(note),
            None => kinds.push((words, vec![note])),
        }
    }
    kinds.into_iter().map(|(_, all)| all).collect()
}

/// Returns the words of a note. Each word with a digit becomes `#`.
fn words(note: &str) -> Vec<&str> {
    let word = |word| match str::contains(word, |c: char| c.is_ascii_digit()) {
        true => "#",
        false => word,
    };
    note.split_whitespace().map(word).collect()
}

/// Returns whether two notes begin and end with the same words, and these are at least three fifths of the longer.
fn is_alike(one: &[&str], other: &[&str]) -> bool {
    let least = one.len().min(other.len());
    let same = |(one, other): &(&&str, &&str)| one == other;
    let before = one.iter().zip(other).take_while(same).count();
    let after = one.iter().rev().zip(other.iter().rev());
    let after = after.take(least - before).take_while(same).count();
    let longest = one.len().max(other.len());
    (before + after) * 5 >= longest * 3 && before + after >= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(notes: &[&str]) -> Vec<String> {
        notes.iter().map(|note| (*note).to_owned()).collect()
    }

    #[test]
    fn many_notes_of_one_kind_are_folded_and_warnings_are_first() {
        let seen = "is seen through the kernel's futex tracepoints: its code holds data";
        let mut notes =
            texts(&["3 waits were not over when the trace ended, and were not counted"]);
        for function in ["ns::f(int, char)", "g", "h", "i", "j"] {
            notes.push(format!("libfoo.so:{function} {seen}"));
        }
        for pid in 1..=429 {
            notes.push(format!(
                "process {pid} (a) was killed by signal 9 after {pid}.1 s"
            ));
        }
        let options = Options::default();
        assert_eq!(
            lines(&notes, &options),
            [
                "warning: process 1 (a) was killed by signal 9 after 1.1 s",
                "warning: process 2 (a) was killed by signal 9 after 2.1 s",
                "warning: process 3 (a) was killed by signal 9 after 3.1 s",
                "warning: … and 426 more like these: `-v` prints them",
                "note: 3 waits were not over when the trace ended, and were not counted",
                &format!("note: libfoo.so:ns::f(int, char) {seen}"),
                &format!("note: libfoo.so:g {seen}"),
                &format!("note: libfoo.so:h {seen}"),
                "note: … and 2 more like these: `-v` prints them",
            ]
        );
        let all = Options {
            all_notes: true,
            ..options
        };
        assert_eq!(lines(&notes, &all).len(), notes.len());
        assert_eq!(
            lines(&notes[1..5], &options).len(),
            4,
            "one more is no shorter"
        );
    }

    #[test]
    fn many_similar_notes_of_a_run_are_printed_once() {
        let mut live = LiveNotes::default();
        let lines: Vec<String> = (1..=20)
            .filter_map(|pid| live.line(&format!("process {pid} (a) exited after {pid}.1 s")))
            .collect();
        assert_eq!(lines.len(), SHOWN + 1);
        assert_eq!(lines[0], "note: process 1 (a) exited after 1.1 s");
        assert_eq!(
            lines[SHOWN],
            "note: … more like these are not printed one by one"
        );
        let other = live.line("f was switched off after 9 hits");
        assert_eq!(
            other.as_deref(),
            Some("warning: f was switched off after 9 hits")
        );
    }

    #[test]
    fn a_warning_says_that_a_number_is_incomplete() {
        for (note, expected) in [
            (
                "13 events not counted: ends of waits whose begin was not seen",
                true,
            ),
            (
                "12 calls (most of f) were not recorded: they were faster than their reader",
                true,
            ),
            (
                "f was switched off after 100 hits: more than 10,000 a second",
                true,
            ),
            (
                "2 waits were not over when the trace ended, and were not counted",
                false,
            ),
            (
                "the program has no function `malloc`: `libc.so.6:malloc` is probed",
                false,
            ),
            (
                "5 calls of f were still running when the trace ended",
                false,
            ),
        ] {
            assert_eq!(is_warning(note), expected, "{note}");
        }
    }

    #[test]
    fn notes_of_different_kinds_stay_apart() {
        let notes = texts(&[
            "process 1 (redis-server) exited after 2.0 s",
            "process 1 (redis-server) is traced by the kernel: it blocks SIGTRAP",
            "only calls below serverCron were counted",
            "only calls that took longer than 30ns are in the times and the histograms",
            "libc.so.6 has no symbols",
            "`--by` does not apply to what the kernel counts",
        ]);
        let notes: Vec<&String> = notes.iter().collect();
        assert_eq!(by_kind(&notes).len(), notes.len());
    }
}
