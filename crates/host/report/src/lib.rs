//! Reports of a session (the record of a run): [`text()`] for people, [`json`] for programs.
//!
//! A report must read only the session, so that sessions of other machines and versions can be printed.
//!
//! Names and comms come from the traced program and may contain escape sequences that a terminal obeys. Each row
//! must escape its fields before it aligns them, because escaping widens them. [`printable_lines`] must be the last
//! step of each text, because it escapes any field that a row forgot.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod calls;
mod columns;
mod cost;
mod grid;
mod heat;
mod histogram;
mod holds;
mod interval;
mod latency;
mod locks;
mod notes;
mod now;
mod number;
mod refusals;
mod scopes;
mod stat;
mod status;
mod style;
mod table;
mod text;
mod waits;
mod watch;

use serde::Serialize;
use tiptoe_event::{Printable, PrintableJson, is_unseen};
use tiptoe_session::{Histogram, Session};

use heat::HeatScale;

pub use calls::call;
pub use columns::message;
pub use cost::{above_budget, cost_line};
pub use grid::table_lines;
pub use interval::interval;
pub use notes::{LiveNotes, note_sentences};
pub use scopes::{SCOPES_CSV_HEADING, scope_counts, scope_counts_csv, scopes_csv};
pub use stat::{
    CSV_HEADING, IntervalTable, counts_csv, counts_fields, counts_so_far, stat_cost, stat_csv,
    stat_fields,
};
pub use status::{RunState, RunStatus, status_line};
pub use style::TextRole;
pub use text::text;
pub use watch::access;

/// How many events a report shows by default.
pub const DEFAULT_TOP: usize = 20;
/// A table is shortened to fit the terminal, but to no fewer rows than this, unless rows are folded
/// ([`Options::is_folded`]).
pub(crate) const LEAST_TOP: usize = 3;
/// How many histograms a report draws by default.
pub const DEFAULT_HISTOGRAMS: usize = 10;

/// The format of a text report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How many events, parts of an event and histograms are shown; 0 shows all. `None` means [`DEFAULT_TOP`] and
    /// [`DEFAULT_HISTOGRAMS`].
    pub top: Option<usize>,
    /// The terminal's columns: wider rows are shortened and wider sentences wrapped. `None` if the text is not
    /// for a terminal.
    pub width: Option<usize>,
    /// The terminal's number of lines. If `top` and `histograms` are not set, the report is shortened to fit.
    pub height: Option<usize>,
    /// Whether rows have fewer details.
    pub is_folded: bool,
    /// Whether times are drawn as histograms instead of a heat line (of blocks) in each row.
    pub histograms: bool,
    /// Whether all notes are printed, instead of the first few of each kind.
    pub all_notes: bool,
    /// Whether the text has colours.
    pub color: bool,
}

impl Options {
    pub(crate) fn shown(&self, len: usize) -> usize {
        at_most(self.top.unwrap_or(DEFAULT_TOP), len)
    }

    /// Returns the options with the largest `top`, from `least` to [`DEFAULT_TOP`], that leaves one terminal line for
    /// the prompt. `lines` returns the number of lines with given options. `None` if no `top` fits.
    pub(crate) fn fitted(
        &self,
        least: usize,
        lines: impl Fn(&Options) -> usize,
    ) -> Option<Options> {
        let height = self.height?;
        let tops: Vec<usize> = (least..=DEFAULT_TOP).collect();
        let fit = tops.partition_point(|top| lines(&self.with_top(*top)) < height);
        Some(self.with_top(tops[fit.checked_sub(1)?]))
    }

    pub(crate) fn with_top(&self, top: usize) -> Options {
        Options {
            top: Some(top),
            ..*self
        }
    }

    pub(crate) fn details(&self, usually: usize) -> usize {
        if self.is_folded { 1 } else { usually }
    }

    pub(crate) fn drawn(&self, len: usize) -> usize {
        at_most(self.top.unwrap_or(DEFAULT_HISTOGRAMS), len)
    }

    /// `None` if histograms are drawn or no row has times.
    pub(crate) fn heat<'a>(
        &self,
        rows: impl Iterator<Item = Option<&'a Histogram>> + Clone,
    ) -> Option<HeatScale> {
        if self.histograms {
            None
        } else {
            HeatScale::of(rows)
        }
    }
}

fn at_most(limit: usize, len: usize) -> usize {
    match limit {
        0 => len,
        limit => len.min(limit),
    }
}

/// Returns the session as a line of JSON with the keys of [`tiptoe_session`]. The line includes the notes in words.
pub fn json(mut session: Session) -> Result<String, serde_json::Error> {
    session.sentences = note_sentences(&session);
    for event in &mut session.events {
        event.sentences = notes::in_words(&event.notes, &event.sentences);
    }
    json_line(&session)
}

/// Returns a part of a session as a line of JSON, in which all characters that a terminal would obey are escaped.
pub fn json_line(part: &impl Serialize) -> Result<String, serde_json::Error> {
    let json = serde_json::to_string(part)?;
    Ok(PrintableJson(&json).to_string() + "\n")
}

/// Returns an event's name for a row: the user's words without `uprobe:`, the most common kind.
pub(crate) fn event_name(event: &str) -> String {
    printable(event.strip_prefix("uprobe:").unwrap_or(event))
}

pub(crate) fn printable(text: &str) -> String {
    Printable(text).to_string()
}

/// Returns text in which a terminal obeys only line ends and this crate's styles.
pub fn printable_lines(text: &str) -> String {
    if !text.contains(|c| c != '\n' && is_unseen(c)) {
        return text.to_owned();
    }
    let lines = text.split('\n').map(style::printable_line);
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_no_row_escaped_reaches_no_terminal() {
        let options = Options {
            color: true,
            ..Options::default()
        };
        let head = options.styled(style::TextRole::Heading, "head");
        let text = format!("{head}\na\u{1b}]0;x\u{7}b\u{202e}\tc\n");
        let shown = format!("{head}\na\\x1b]0;x\\x07b\\u{{202e}}\\tc\n");
        assert_eq!(printable_lines(&text), shown);
    }

    #[test]
    fn a_terminal_obeys_nothing_in_json() {
        let session = Session {
            command: vec!["a\u{9b}2J\u{202e}".into()],
            ..Session::default()
        };
        let json = json(session).expect("a session is JSON");
        assert!(json.contains("\"a\\u009b2J\\u202e\""), "{json}");
        let back: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(back["command"][0], "a\u{9b}2J\u{202e}");
    }
}
