//! Colours by meaning. The text must mean the same without colours.
//!
//! These styles must be the only escape sequences of a text that reach a terminal.

use anstyle::{AnsiColor, Reset, Style};

use crate::number::share;
use crate::{Options, printable};

/// Shares of at least this size are [`TextRole::Hot`].
const HOT: f64 = 0.2;
/// Smaller shares are [`TextRole::Dim`].
const DIM: f64 = 0.01;

/// What a part of a text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextRole {
    /// The name of columns or of a part.
    Heading,
    /// Something unexpected, or that works only partly.
    Warning,
    /// Something that failed or does not work.
    Error,
    /// Something that works.
    Good,
    /// What the user can do.
    Hint,
    /// A large part of a whole.
    Hot,
    /// A small part of a whole.
    Dim,
}

impl TextRole {
    const ALL: [TextRole; 7] = [
        TextRole::Heading,
        TextRole::Warning,
        TextRole::Error,
        TextRole::Good,
        TextRole::Hint,
        TextRole::Hot,
        TextRole::Dim,
    ];

    const fn style(self) -> Style {
        match self {
            TextRole::Heading => Style::new().bold(),
            TextRole::Warning => AnsiColor::Yellow.on_default(),
            TextRole::Error => AnsiColor::Red.on_default().bold(),
            TextRole::Good => AnsiColor::Green.on_default(),
            TextRole::Hint => AnsiColor::Cyan.on_default(),
            TextRole::Hot => AnsiColor::Red.on_default(),
            TextRole::Dim => Style::new().dimmed(),
        }
    }

    pub(crate) fn of_share(part: u64, whole: u64) -> Option<TextRole> {
        match part as f64 / whole as f64 {
            share if share >= HOT => Some(TextRole::Hot),
            share if share < DIM => Some(TextRole::Dim),
            _ => None,
        }
    }
}

impl Options {
    /// Returns the text, with the role's colour if [`Options::color`] is set.
    pub fn styled(&self, role: impl Into<Option<TextRole>>, text: &str) -> String {
        match role.into().filter(|_| self.color) {
            Some(role) => {
                let style = role.style();
                format!("{style}{text}{style:#}")
            }
            None => text.to_owned(),
        }
    }

    pub(crate) fn share(&self, part: u64, whole: u64) -> String {
        self.styled(TextRole::of_share(part, whole), &share(part, whole))
    }
}

fn sequences() -> Vec<String> {
    let styles = TextRole::ALL.map(|role| role.style().render().to_string());
    let reset = Reset.render().to_string();
    styles.into_iter().chain([reset]).collect()
}

pub(crate) fn plain(text: &str) -> String {
    let sequences = sequences().into_iter();
    sequences.fold(text.to_owned(), |text, sequence| {
        text.replace(&sequence, "")
    })
}

/// Escapes all that a terminal would obey, except styles.
pub(crate) fn printable_line(line: &str) -> String {
    let sequences = sequences();
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, escape) = rest.split_at(at);
        let known = sequences.iter().find(|known| escape.starts_with(*known));
        let kept = known.map_or("", |known| known);
        out += &printable(before);
        out += kept;
        rest = &escape[kept.len()..];
        if kept.is_empty() {
            out += &printable("\u{1b}");
            rest = &escape[1..];
        }
    }
    out + &printable(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_styles_only() {
        let options = Options {
            color: true,
            ..Options::default()
        };
        for role in TextRole::ALL {
            let styled = options.styled(role, "x");
            assert_ne!(styled, "x");
            assert_eq!(printable_line(&styled), styled);
            assert_eq!(plain(&styled), "x");
        }
        assert_eq!(printable_line("a\u{1b}[2Jb\u{1b}"), "a\\x1b[2Jb\\x1b");
    }

    #[test]
    fn large_shares_are_hot_and_small_ones_dim() {
        let tones = [0, 9, 10, 199, 200, 1000].map(|part| TextRole::of_share(part, 1000));
        let (dim, hot) = (Some(TextRole::Dim), Some(TextRole::Hot));
        assert_eq!(tones, [dim, dim, None, None, hot, hot]);
        assert_eq!(TextRole::of_share(0, 0), None);
    }
}
