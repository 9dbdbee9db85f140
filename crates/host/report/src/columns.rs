//! Measures, aligns, shortens and wraps text for the columns of a terminal.
//!
//! Only [`columns`] may measure text, because a table that mixes two measures is not aligned. Escape sequences
//! have width 0, and characters of East Asian scripts width 2.

use textwrap::core::display_width;
use textwrap::{WordSplitter, WrapAlgorithm};

use crate::style::{TextRole, plain};
use crate::{Options, printable};

/// Replaces a space inside a name, at which no line shall end if the name fits on a line. [`Options::wrapped`] prints
/// a space.
const JOINED: &str = "\u{a0}";

/// Names are never shortened to fewer columns, because the rest could not be recognized.
pub(crate) const LEAST_NAME: usize = 12;

const INDENT: usize = 2;

const HINT: &str = "hint: ";
const COMMANDS: [&str; 2] = ["tiptoe ", "sudo "];

const LABELS: [(&str, Option<TextRole>); 6] = [
    ("warning: ", Some(TextRole::Warning)),
    ("note: ", Some(TextRole::Warning)),
    (HINT, None),
    ("error: ", Some(TextRole::Error)),
    ("deadlock: ", Some(TextRole::Error)),
    ("cost of tracing: ", None),
];

pub(crate) fn columns(text: &str) -> usize {
    display_width(text)
}

pub(crate) fn joined(text: &str) -> String {
    text.replace(' ', JOINED)
}

/// Returns a name from the traced program, escaped and [`joined`].
pub(crate) fn whole(name: &str) -> String {
    joined(&printable(name))
}

pub(crate) fn right(text: &str, width: usize) -> String {
    spaces(width.saturating_sub(columns(text))) + text
}

pub(crate) fn left(text: &str, width: usize) -> String {
    text.to_owned() + &spaces(width.saturating_sub(columns(text)))
}

fn spaces(count: usize) -> String {
    " ".repeat(count)
}

/// Returns the name without its middle if it is wider than `room`. If `room` is below [`LEAST_NAME`], the whole name
/// is returned.
pub(crate) fn shortened(name: &str, room: usize) -> String {
    if columns(name) <= room || room < LEAST_NAME {
        return name.to_owned();
    }
    let end = last_columns(name, (room - 1) / 2);
    format!("{}…{end}", first_columns(name, room - 1 - columns(end)))
}

pub(crate) fn cut(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    // The text is cut without styles, because a cut before a style's end would colour the following text.
    format!("{}…", first_columns(&plain(text), room.saturating_sub(1)))
}

fn first_columns(text: &str, room: usize) -> &str {
    let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let fits = |end: &usize| columns(&text[..*end]) <= room;
    text.get(..ends.take_while(fits).last().unwrap_or(0))
        .unwrap_or_default()
}

fn last_columns(text: &str, room: usize) -> &str {
    let begins = text.char_indices().rev().map(|(at, _)| at);
    let fits = |begin: &usize| columns(&text[*begin..]) <= room;
    text.get(begins.take_while(fits).last().unwrap_or(text.len())..)
        .unwrap_or_default()
}

/// Returns a message of one line, as lines that fit the terminal.
pub fn message(text: &str, options: &Options) -> String {
    options.sentence(&printable(text)).join("\n")
}

impl Options {
    pub(crate) fn fit(&self, row: &str) -> String {
        let row = row.trim_end();
        self.width
            .map_or_else(|| row.to_owned(), |width| cut(row, width))
    }

    /// Returns a label and a text, wrapped at spaces to the terminal's width. Only a word that fits on no line is
    /// broken. Further lines are indented by the label's width. Without a width there is one line.
    pub(crate) fn wrapped(&self, label: &str, text: &str) -> Vec<String> {
        let one = format!("{label}{text}");
        match self.width {
            Some(width) if columns(&one) > width => wrap(label, text, width),
            _ => vec![one.replace(JOINED, " ")],
        }
    }

    pub(crate) fn sentence(&self, text: &str) -> Vec<String> {
        let label = LABELS.iter().find(|(label, _)| text.starts_with(label));
        let (label, role) = label.copied().unwrap_or_default();
        let text = text.strip_prefix(label).unwrap_or(text);
        // A hint that is a long command is not broken, so that a user can copy it.
        let is_command = COMMANDS.iter().any(|program| text.starts_with(program));
        let is_long = self
            .width
            .is_some_and(|width| columns(label) + columns(text) > width);
        if label == HINT && is_command && is_long {
            return vec![label.trim_end().to_owned(), spaces(INDENT) + text];
        }
        self.wrapped(&self.styled(role, label), text)
    }
}

/// Wraps a text. A command between backticks that fits on no line has a line of its own, wider than the terminal. The
/// terminal itself breaks that line, so that a user can copy the command as one line.
fn wrap(label: &str, text: &str, width: usize) -> Vec<String> {
    let Some((before, literal, after)) = long_literal(text, width.saturating_sub(INDENT)) else {
        return wrap_words(label, text, width);
    };
    let mut lines = match before.trim_end() {
        "" => vec![label.trim_end().to_owned()],
        before => wrap_words(label, before, width),
    };
    lines.push(spaces(INDENT) + &literal.replace(JOINED, " "));
    let after = after.trim_start();
    if after.contains(char::is_alphanumeric) {
        let indent = spaces(columns(label).min(width / 2));
        lines.extend(wrap(&indent, after, width));
    }
    lines
}

/// Returns the first command between backticks that is wider than `room`, with the text before and after the command.
fn long_literal(text: &str, room: usize) -> Option<(&str, &str, &str)> {
    let mut parts = text.match_indices('`').map(|(at, _)| at);
    while let (Some(begin), Some(end)) = (parts.next(), parts.next()) {
        let literal = &text[begin + 1..end];
        if literal.contains(' ') && columns(literal) > room {
            return Some((&text[..begin], literal, &text[end + 1..]));
        }
    }
    None
}

fn wrap_words(label: &str, text: &str, width: usize) -> Vec<String> {
    // If the label leaves the text too little room, label and text are wrapped together.
    let (label, rest) = match columns(label) * 3 > width * 2 {
        true => ("", format!("{label}{text}")),
        false => (label, text.to_owned()),
    };
    let indent = match columns(label) {
        0 => spaces(INDENT.min(width / 2)),
        columns => spaces(columns),
    };
    let room = width.saturating_sub(indent.len());
    let words = join_literals(&rest, room);
    let words: Vec<String> = words.split(' ').map(|word| word_in(word, room)).collect();
    let form = textwrap::Options::new(width)
        .initial_indent(label)
        .subsequent_indent(&indent)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    let text = words.join(" ");
    let lines = textwrap::wrap(&text, form).into_iter();
    lines.map(|line| line.replace(JOINED, " ")).collect()
}

/// Lets lines end at the spaces of a word that fits on no line.
fn word_in(word: &str, room: usize) -> String {
    match columns(word) > room {
        true => word.replace(JOINED, " "),
        false => word.to_owned(),
    }
}

fn join_literals(text: &str, room: usize) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return text.to_owned();
    }
    let parts = parts.iter().enumerate().map(|(at, part)| {
        let is_joined = at % 2 == 1 && columns(part) + 2 <= room;
        if is_joined {
            joined(part)
        } else {
            (*part).to_owned()
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(width: usize, label: &str, text: &str) -> Vec<String> {
        let options = Options {
            width: Some(width),
            ..Options::default()
        };
        let lines = options.wrapped(label, text);
        let widest = lines.iter().map(|line| columns(line)).max();
        assert!(widest <= Some(width), "{widest:?} of {width}: {lines:#?}");
        lines
    }

    #[test]
    fn lines_end_at_words_and_begin_below_the_text() {
        assert_eq!(
            lines(24, "note: ", "2 waits were not over when the trace ended"),
            [
                "note: 2 waits were not",
                "      over when the",
                "      trace ended"
            ]
        );
        assert_eq!(lines(24, "", "a b"), ["a b"]);
        assert_eq!(lines(9, "", "one two three"), ["one two", "  three"]);
        let unlimited = Options::default().wrapped("note: ", &joined("a b"));
        assert_eq!(unlimited, ["note: a b"]);
    }

    /// Regression: a name with parameters was broken at its spaces, so that a search did not find it.
    #[test]
    fn a_name_is_broken_only_if_no_line_holds_it() {
        let text = format!("by {}, x", whole("shop::add(int, int)"));
        let whole_name = ["  <- by", "     shop::add(int, int),", "     x"];
        assert_eq!(lines(25, "  <- ", &text), whole_name);
        let narrow = lines(16, "  <- ", &text);
        assert_eq!(narrow, ["  <- by", "     shop::add(i", "     nt, int), x"]);
        let hint = "`tiptoe lock -p 7` shows it";
        assert_eq!(
            lines(26, "hint: ", hint),
            ["hint: `tiptoe lock -p 7`", "      shows it"]
        );
    }

    #[test]
    fn a_long_command_has_a_line_of_its_own() {
        let options = Options {
            width: Some(40),
            ..Options::default()
        };
        let setcap = "sudo setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep /usr/bin/tiptoe";
        let own = format!("  {setcap}");
        for (text, expected) in [
            (
                format!("hint: run as the user of that process, or `{setcap}`"),
                vec!["hint: run as the user of that process,", "      or", &own],
            ),
            (
                format!("hint: `{setcap}` allows it, or run tiptoe as root"),
                vec!["hint:", &own, "      allows it, or run tiptoe as root"],
            ),
            (format!("hint: {setcap}"), vec!["hint:", &own]),
            (
                "hint: tiptoe lock --help".to_owned(),
                vec!["hint: tiptoe lock --help"],
            ),
        ] {
            assert_eq!(options.sentence(&text), expected);
        }
    }

    #[test]
    fn any_text_fits_any_width() {
        for width in 4..60 {
            for text in [
                "",
                "word",
                "many words of one text",
                "aaaaaaaaaaaaaaaaaaaaaaaa名前名前名前 b",
                "`a` b `c",
            ] {
                lines(width, "", text);
                lines(width, "cost of tracing: ", text);
            }
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(columns("名a"), 3);
        assert_eq!(columns("\u{1b}[1ma\u{1b}[0m"), 1);
        assert_eq!(left("名", 3), "名 ");
        assert_eq!(right("名", 3), " 名");
        assert_eq!(cut("名前x", 4), "名…");
        assert_eq!(shortened("名前名前名前名前", 12), "名前名…名前");
    }
}
