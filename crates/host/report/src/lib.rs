//! Reports: they read a session and nothing else, so a session that was taken
//! on another machine, or by another version, prints here.
//!
//! [`text`] is for people, [`json`] for programs. What the traced program had a
//! hand in (names, comms) is escaped before it reaches a terminal.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod calls;
mod cost;
mod ends;
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
            true => format!("\u{1b}[1m{heading}\u{1b}[0m"),
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
    serde_json::to_string(session).map(|line| line + "\n")
}

/// An event's name in a row: its resolved spec, less the kind that goes without saying.
pub(crate) fn event_name(event: &str) -> String {
    printable(event.strip_prefix("uprobe:").unwrap_or(event))
}

/// Text that the traced program had a hand in, without control characters.
pub(crate) fn printable(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().collect::<String>(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}
