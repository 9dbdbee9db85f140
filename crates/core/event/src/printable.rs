//! Makes foreign text safe to print. Terminals obey control characters. Invisible characters, and those that change the
//! text's direction, can disguise a line.

use core::fmt::{self, Display, Formatter, Write};

/// Prints text with `\n`, `\x1b` or `\u{202e}` for each unsafe character.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

/// Prints JSON with escapes, such as `\u202e`, for unsafe characters in strings.
#[derive(Clone, Copy, Debug)]
pub struct PrintableJson<'a>(pub &'a str);

/// Prints a word of a shell command, quoted if necessary.
#[derive(Clone, Copy, Debug)]
pub struct ShellWord<'a>(pub &'a [u8]);

/// Unicode's Default_Ignorable_Code_Point and Bidi_Control, and separators of lines and annotations.
const UNSEEN: [(char, char); 17] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Returns whether a character is invisible or a control.
pub fn is_unseen(c: char) -> bool {
    let within = |(first, last): &(char, char)| (*first..=*last).contains(&c);
    c.is_control() || (c > '\u{7f}' && UNSEEN.iter().any(within))
}

impl Display for Printable<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write_with(self.0, is_unseen, f, |c, f| match c {
            '\n' | '\r' | '\t' => write!(f, "{}", c.escape_default()),
            c if c.is_ascii() => write!(f, "\\x{:02x}", u32::from(c)),
            c => write!(f, "{}", c.escape_unicode()),
        })
    }
}

impl Display for PrintableJson<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_escaped = |c| c != '\n' && is_unseen(c);
        write_with(self.0, is_escaped, f, |c, f| {
            let mut units = [0; 2];
            let mut units = c.encode_utf16(&mut units).iter();
            units.try_for_each(|unit| write!(f, "\\u{unit:04x}"))
        })
    }
}

fn write_with(
    text: &str,
    is_escaped: impl Fn(char) -> bool,
    f: &mut Formatter<'_>,
    escape: impl Fn(char, &mut Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for piece in text.split_inclusive(&is_escaped) {
        match piece.char_indices().next_back() {
            Some((at, c)) if is_escaped(c) => {
                f.write_str(&piece[..at])?;
                escape(c, f)?;
            }
            _ => f.write_str(piece)?,
        }
    }
    Ok(())
}

impl Display for ShellWord<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(byte);
        match core::str::from_utf8(self.0) {
            Ok(word) if !word.is_empty() && word.bytes().all(|byte| is_plain(&byte)) => {
                f.write_str(word)
            }
            Ok(word) if !word.contains(is_unseen) => quoted(word, f),
            _ => escaped(self.0, f),
        }
    }
}

/// Writes a word in quotes: `it's` becomes `'it'\''s'`.
fn quoted(word: &str, f: &mut Formatter<'_>) -> fmt::Result {
    f.write_char('\'')?;
    for (at, piece) in word.split('\'').enumerate() {
        f.write_str(if at > 0 { "'\\''" } else { "" })?;
        f.write_str(piece)?;
    }
    f.write_char('\'')
}

/// Writes `$'a\033b'`, which bash, ksh and zsh understand.
fn escaped(word: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("$'")?;
    for byte in word {
        match byte {
            b'\'' | b'\\' => write!(f, "\\{}", char::from(*byte))?,
            b' '..=b'~' => f.write_char(char::from(*byte))?,
            // Always three digits; otherwise a following digit would belong to the escape.
            _ => write!(f, "\\{byte:03o}")?,
        }
    }
    f.write_char('\'')
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::ToString;

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("dictFind", "dictFind"),
            ("größe π 名前", "größe π 名前"),
            ("", ""),
            ("a\x1b[2Jb\nc", "a\\x1b[2Jb\\nc"),
            ("\u{9b}2J\x7f", "\\u{9b}2J\\x7f"),
            ("abc\u{202e}fed", "abc\\u{202e}fed"),
            (
                "a\u{200b}b\u{feff}\u{e0041}",
                "a\\u{200b}b\\u{feff}\\u{e0041}",
            ),
            ("\u{2028}\u{ad}\u{2066}x", "\\u{2028}\\u{ad}\\u{2066}x"),
        ] {
            assert_eq!(Printable(text).to_string(), shown);
        }
    }

    #[test]
    fn json_keeps_its_values() {
        let shown = PrintableJson("{\"a\":\"\u{9b}\u{202e}\u{e0041}é\"}\n").to_string();
        assert_eq!(shown, "{\"a\":\"\\u009b\\u202e\\udb40\\udc41é\"}\n");
    }

    #[test]
    fn words_of_a_command_are_one_word() {
        for (word, shown) in [
            (&b"/usr/bin/redis-server"[..], "/usr/bin/redis-server"),
            (b"", "''"),
            (b"a b", "'a b'"),
            (b"$(reboot)", "'$(reboot)'"),
            (b"it's", "'it'\\''s'"),
            (b"*;", "'*;'"),
            (b"~/a", "'~/a'"),
            (b"a\x1b'\\7\xff", "$'a\\033\\'\\\\7\\377'"),
            ("\u{202e}x".as_bytes(), "$'\\342\\200\\256x'"),
        ] {
            assert_eq!(ShellWord(word).to_string(), shown);
        }
    }
}
