//! Reports: they read a session and nothing else, so a session that was taken
//! on another machine, or by another version, prints here.
//!
//! [`text`] is for people, [`json`] for programs. What the traced program had a
//! hand in (names, comms) is escaped before it reaches a terminal.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod cost;
mod interval;
mod number;
mod refusals;
mod table;
mod text;

use tiptoe_session::Session;

pub use cost::cost_line;
pub use interval::interval;
pub use text::text;

/// How many events a report shows unless told otherwise.
pub const DEFAULT_TOP: usize = 20;

/// What the form of a text report depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many events, and parts of an event, are shown; 0 shows all.
    pub top: usize,
    /// The columns of the terminal: longer rows are cut. `None` cuts nothing.
    pub width: Option<usize>,
    /// Whether headings stand out. Nothing is said by colour alone.
    pub color: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            top: DEFAULT_TOP,
            width: None,
            color: false,
        }
    }
}

impl Options {
    /// How many of `len` rows are shown.
    pub(crate) fn shown(&self, len: usize) -> usize {
        if self.top == 0 {
            len
        } else {
            len.min(self.top)
        }
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

/// The session as one line of JSON; its keys are those of [`Session`]:
/// `tiptoe`, `command`, `events`, `cost`, `targets`, `started_unix_ns`,
/// `duration_ns`, `cpu_ns`, and where there are any `refusals`, `notes`, `intervals`.
pub fn json(session: &Session) -> Result<String, serde_json::Error> {
    serde_json::to_string(session).map(|line| line + "\n")
}

/// Text that the traced program had a hand in, without control characters.
pub(crate) fn printable(text: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_default().collect::<String>(),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}
