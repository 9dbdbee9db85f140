//! The text form of a watch.
//!
//! ```text
//! WATCH  = [BINARY ":"] (VARIABLE | ADDRESS) [":" LEN] [":" ACCESS]
//! BINARY = a path, a soname or a glob; without it, the program itself
//! LEN    = "1" | "2" | "4" | "8"; without it, the size of the variable's type
//! ACCESS = "w" | "rw" | "x"; without it, "w"
//! ```
//!
//! A `:` in a `::` or between single quotes never splits: `prog:'w'` is a variable of that name. An
//! address after a binary is a link-time address of that file; any other is the process's.

use std::fmt;

use super::expression::Expression;
use crate::error::watch::{WatchError, WatchFault};

/// The accesses that a breakpoint reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Writes.
    Write,
    /// Reads and writes.
    ReadWrite,
    /// Execution.
    Execute,
}

/// The lengths of breakpoints.
pub const LENGTHS: [u8; 4] = [1, 2, 4, 8];

/// One watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watch {
    /// The file; `None` for the program itself.
    pub binary: Option<String>,
    /// The variable or address.
    pub expression: Expression,
    /// The number of bytes, if requested.
    pub length: Option<u8>,
    /// The accesses to report.
    pub access: Access,
}

#[derive(Clone, Copy)]
struct TextPart<'a> {
    text: &'a str,
    at: usize,
}

impl TextPart<'_> {
    fn fault<T>(self, fault: WatchFault) -> Result<T, WatchError> {
        Err(WatchError { at: self.at, fault })
    }

    fn is_number(self) -> bool {
        !self.text.is_empty() && self.text.bytes().all(|byte| byte.is_ascii_digit())
    }
}

impl Watch {
    /// Parses a watch.
    pub fn parse(text: &str) -> Result<Watch, WatchError> {
        if let Some(at) = text.find(char::is_control) {
            let fault = WatchFault::ControlCharacter;
            return Err(WatchError { at, fault });
        }
        let mut parts = parts(text)?;
        let access = take_access(&mut parts)?;
        let length = take_length(&mut parts, access)?;
        let (binary, variable) = match parts[..] {
            [variable] => (None, variable),
            [binary, _] if binary.text.is_empty() => return binary.fault(WatchFault::NoBinary),
            [binary, variable] => (Some(binary.text.to_owned()), variable),
            _ => return parts[2].fault(WatchFault::TooManyParts),
        };
        let within = |error: WatchError| WatchError {
            at: error.at + variable.at,
            ..error
        };
        Ok(Watch {
            binary,
            expression: Expression::parse(variable.text).map_err(within)?,
            length,
            access: access.unwrap_or(Access::Write),
        })
    }
}

fn parts(text: &str) -> Result<Vec<TextPart<'_>>, WatchError> {
    let bytes = text.as_bytes();
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|&&byte| byte == b':').count();
        match bytes[at] {
            b'\'' => match text[at + 1..].find('\'') {
                Some(length) => at += length + 2,
                None => {
                    let fault = WatchFault::OpenQuote;
                    return Err(WatchError { at, fault });
                }
            },
            // In an odd run of colons the first splits: `bin:::f` is `::f` in `bin`.
            b':' => {
                if run % 2 == 1 {
                    let part = &text[start..at];
                    parts.push(TextPart {
                        text: part,
                        at: start,
                    });
                    start = at + 1;
                }
                at += run;
            }
            _ => at += 1,
        }
    }
    let part = &text[start..];
    parts.push(TextPart {
        text: part,
        at: start,
    });
    Ok(parts)
}

/// Takes the access, if it is the last of several parts.
fn take_access(parts: &mut Vec<TextPart<'_>>) -> Result<Option<Access>, WatchError> {
    let [_, .., last] = parts[..] else {
        return Ok(None);
    };
    let access = match last.text {
        "w" => Access::Write,
        "rw" => Access::ReadWrite,
        "x" => Access::Execute,
        "r" => return last.fault(WatchFault::ReadOnly),
        "wr" | "rx" | "wx" | "rwx" => return last.fault(WatchFault::BadAccess),
        _ => return Ok(None),
    };
    parts.pop();
    Ok(Some(access))
}

/// Takes the length, if it is the last of several parts, and decimal.
fn take_length(
    parts: &mut Vec<TextPart<'_>>,
    access: Option<Access>,
) -> Result<Option<u8>, WatchError> {
    let [.., before, last] = parts[..] else {
        return Ok(None);
    };
    if !last.is_number() {
        return Ok(None);
    }
    let length = last.text.parse().ok();
    let Some(length) = length.filter(|length| LENGTHS.contains(length)) else {
        return last.fault(WatchFault::BadLength);
    };
    let is_access = ["r", "w", "rw", "x"].contains(&before.text);
    if access.is_none() && is_access && parts.len() > 2 {
        return last.fault(WatchFault::LengthLast);
    }
    parts.pop();
    Ok(Some(length))
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Write => "w",
            Access::ReadWrite => "rw",
            Access::Execute => "x",
        })
    }
}

/// The text parses to the same value.
impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(binary) = &self.binary {
            write!(f, "{binary}:")?;
        }
        write!(f, "{}", self.expression)?;
        if let Some(length) = self.length {
            write!(f, ":{length}")?;
        }
        write!(f, ":{}", self.access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, binary: Option<&str>, variable: &str, length: Option<u8>, access: Access) {
        let watch = Watch::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(watch.binary.as_deref(), binary, "{text}");
        assert_eq!(watch.expression.to_string(), variable, "{text}");
        assert_eq!((watch.length, watch.access), (length, access), "{text}");
        assert_eq!(Watch::parse(&watch.to_string()), Ok(watch), "{text}");
    }

    #[test]
    fn parts_in_their_order() {
        use Access::{Execute, ReadWrite, Write};
        check("x", None, "x", None, Write);
        check("x:8", None, "x", Some(8), Write);
        check("x:rw", None, "x", None, ReadWrite);
        check("x:2:rw", None, "x", Some(2), ReadWrite);
        check("main:x", None, "main", None, Execute);
        check(
            "redis-server:server.port",
            Some("redis-server"),
            "server.port",
            None,
            Write,
        );
        check(
            "/opt/a b/c.so:x:4:w",
            Some("/opt/a b/c.so"),
            "x",
            Some(4),
            Write,
        );
        check("0x601040:8", None, "0x601040", Some(8), Write);
        check(
            "libc.so.6:0x1d2060:4",
            Some("libc.so.6"),
            "0x1d2060",
            Some(4),
            Write,
        );
        check("6295616:1", None, "0x601040", Some(1), Write);
    }

    #[test]
    fn colons_of_names() {
        use Access::Write;
        check("ns::Class::member", None, "ns::Class::member", None, Write);
        check("bin:ns::x:4", Some("bin"), "ns::x", Some(4), Write);
        check("bin:::x", Some("bin"), "::x", None, Write);
        check(
            "'ns::Class::member':w",
            None,
            "ns::Class::member",
            None,
            Write,
        );
        check("prog:'w'", Some("prog"), "w", None, Write);
        check("'a:b'", None, "'a:b'", None, Write);
        check("w:w", None, "w", None, Write);
        check("'server.c'::x:8", None, "'server.c'::x", Some(8), Write);
    }

    #[test]
    fn faults() {
        use WatchFault as F;
        let check = |text: &str, at, fault| {
            assert_eq!(Watch::parse(text), Err(WatchError { at, fault }), "{text}");
        };
        check("", 0, F::NoVariable);
        check("bin:", 4, F::NoVariable);
        check(":variable", 0, F::NoBinary);
        check("a:b:c", 4, F::TooManyParts);
        check("x:r", 2, F::ReadOnly);
        check("x:8:r", 4, F::ReadOnly);
        check("x:rwx", 2, F::BadAccess);
        check("x:3", 2, F::BadLength);
        check("x:16", 2, F::BadLength);
        check("x:99999999999999999999", 2, F::BadLength);
        check("x:w:8", 4, F::LengthLast);
        check("a\nb", 1, F::ControlCharacter);
        check("b:'x", 2, F::OpenQuote);
        check("bin:x.", 6, F::NoName);
        let error = Watch::parse("x:r").unwrap_err().to_string();
        assert!(
            error.contains("`rw`") && error.ends_with("(at character 3)"),
            "{error}"
        );
    }
}
