//! Reports: they read a session and nothing else, so a session that was taken
//! on another machine, or by another version, prints here.
//!
//! [`text`] is for people, [`json`] for programs. What the traced program had a
//! hand in (names, comms) is escaped where a row is made, and [`printable_lines`] is the last thing that happens
//! to text, so that no field can be forgotten.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod calls;
mod cost;
mod ends;
mod grid;
mod histogram;
mod interval;
mod latency;
mod locks;
mod now;
mod number;
mod refusals;
mod scopes;
mod stat;
mod table;
mod text;
mod waits;
mod watch;

use tiptoe_event::{Printable, PrintableJson, is_unseen};
use tiptoe_session::Session;

pub use calls::{call, call_json};
pub use cost::cost_line;
pub use interval::{interval, interval_json};
pub use stat::{
    counts, counts_csv, counts_fields, counts_heading, counts_json, csv_heading, stat_cost,
    stat_csv, stat_fields,
};
pub use text::text;
pub use watch::{access, access_json};

/// What a terminal is told where a heading begins, and ends.
const BOLD: &str = "\u{1b}[1m";
const NOT_BOLD: &str = "\u{1b}[0m";

/// How many events a report shows unless told otherwise.
pub const DEFAULT_TOP: usize = 20;
/// How many histograms a report draws unless told otherwise.
pub const DEFAULT_HISTOGRAMS: usize = 10;

/// What the form of a text report depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How many events, parts of an event, and histograms are shown; 0 shows
    /// all. `None` is as many as a reader takes in.
    pub top: Option<usize>,
    /// The columns of the terminal: longer rows are cut. `None` cuts nothing.
    pub width: Option<usize>,
    /// Whether headings stand out. Nothing is said by colour alone.
    pub color: bool,
}

impl Options {
    /// How many of `len` rows are shown.
    pub(crate) fn shown(&self, len: usize) -> usize {
        at_most(self.top.unwrap_or(DEFAULT_TOP), len)
    }

    /// How many of `len` histograms are drawn.
    pub(crate) fn drawn(&self, len: usize) -> usize {
        at_most(self.top.unwrap_or(DEFAULT_HISTOGRAMS), len)
    }

    /// A row that fits the terminal, cut with an ellipsis.
    pub(crate) fn fit(&self, row: &str) -> String {
        let row = row.trim_end();
        let Some(width) = self.width.filter(|width| row.chars().count() > *width) else {
            return row.to_owned();
        };
        let kept = row.chars().take(width.saturating_sub(1));
        kept.chain(std::iter::once('…')).collect()
    }

    /// A heading, which stands out where that is wanted.
    pub(crate) fn heading(&self, heading: &str) -> String {
        match self.color {
            true => format!("{BOLD}{heading}{NOT_BOLD}"),
            false => heading.to_owned(),
        }
    }
}

fn at_most(limit: usize, len: usize) -> usize {
    match limit {
        0 => len,
        limit => len.min(limit),
    }
}

/// The session as one line of JSON; its keys are those of [`Session`],
/// listed where that is documented.
pub fn json(session: &Session) -> Result<String, serde_json::Error> {
    printable_json(serde_json::to_string(session)).map(|line| line + "\n")
}

/// JSON of the same value that a terminal shows as it is.
pub(crate) fn printable_json(json: serde_json::Result<String>) -> serde_json::Result<String> {
    json.map(|json| PrintableJson(&json).to_string())
}

/// An event's name in a row: its resolved spec, less the kind that goes without saying.
pub(crate) fn event_name(event: &str) -> String {
    printable(event.strip_prefix("uprobe:").unwrap_or(event))
}

/// Text that the traced program had a hand in, as [`Printable`] shows it.
pub(crate) fn printable(text: &str) -> String {
    Printable(text).to_string()
}

/// Text of several lines, of which nothing is left that a terminal would obey but ends of lines and bold headings.
pub fn printable_lines(text: &str) -> String {
    if !text.contains(|c| c != '\n' && is_unseen(c)) {
        return text.to_owned();
    }
    let of_line = |line: &str| {
        let plain = line.split(BOLD).map(|part| {
            let plain: Vec<String> = part.split(NOT_BOLD).map(printable).collect();
            plain.join(NOT_BOLD)
        });
        plain.collect::<Vec<_>>().join(BOLD)
    };
    text.split('\n').map(of_line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_that_was_forgotten_reaches_a_terminal() {
        let text = format!("{BOLD}head{NOT_BOLD}\na\u{1b}]0;x\u{7}b\u{202e}\tc\n");
        let shown = format!("{BOLD}head{NOT_BOLD}\na\\x1b]0;x\\x07b\\u{{202e}}\\tc\n");
        assert_eq!(printable_lines(&text), shown);
    }

    #[test]
    fn json_holds_nothing_that_a_terminal_obeys() {
        let session = Session {
            command: vec!["a\u{9b}2J\u{202e}".into()],
            ..Session::default()
        };
        let json = json(&session).expect("a session is JSON");
        assert!(json.contains("\"a\\u009b2J\\u202e\""), "{json}");
        let back: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(back["command"][0], "a\u{9b}2J\u{202e}");
    }
}
