//! An event that watches a variable or an address.
//!
//! ```text
//! MEMORY = [BINARY ":"] (VARIABLE | ADDRESS) [":" LEN] [":" ACCESS] ["/pinned/"]
//! BINARY = as in [`crate::spec`]
//! LEN    = "1" | "2" | "4" | "8"; without it, the size of the variable's type
//! ACCESS = "w" | "rw" | "x"; without it, "w"
//! ```
//!
//! A `:` in a `::` or between single quotes separates no parts. In `prog:'w'`, `w` is a variable, not an access. An
//! address is a link-time address of the binary, or, without a binary, an address in the process.

use core::fmt;

use crate::text::{TextError, TextPart};

/// What a breakpoint reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Writes.
    Write,
    /// Reads and writes.
    ReadWrite,
    /// Execution.
    Execute,
}

impl Access {
    /// Returns `w`, `rw` or `x`.
    pub const fn word(self) -> &'static str {
        match self {
            Access::Write => "w",
            Access::ReadWrite => "rw",
            Access::Execute => "x",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The lengths of breakpoints.
pub const LENGTHS: [u8; 4] = [1, 2, 4, 8];

const PINNED: &str = "/pinned/";

/// A variable to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Memory<'a> {
    /// The whole text.
    pub text: &'a str,
    /// The file that has the variable; `None` for the program itself.
    pub binary: Option<&'a str>,
    /// The variable or address.
    pub variable: TextPart<'a>,
    /// The number of bytes, if requested.
    pub length: Option<u8>,
    /// What to report.
    pub access: Access,
    /// Whether the variable keeps its debug register while other variables take turns.
    pub is_pinned: bool,
}

/// What is wrong in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryFault {
    /// The binary is missing.
    NoBinary,
    /// Too many parts.
    TooManyParts,
    /// Reads without writes, which no breakpoint reports.
    ReadOnly,
    /// An unknown kind of access.
    BadAccess,
    /// A length that no breakpoint has.
    BadLength,
    /// The length follows the access.
    LengthLast,
    /// A control character.
    ControlCharacter,
    /// A `'` without its partner.
    OpenQuote,
}

impl fmt::Display for MemoryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryFault::NoBinary => "a binary is missing before the `:`",
            MemoryFault::TooManyParts => {
                "too many `:` (write [BINARY:]VARIABLE[:LEN][:w|rw|x], with '…' around a name that has one)"
            }
            MemoryFault::ReadOnly => "the processor cannot watch reads alone; write `rw`",
            MemoryFault::BadAccess => "not a kind of access (write `w`, `rw` or `x`)",
            MemoryFault::BadLength => {
                "not a length that the processor can watch (1, 2, 4 or 8 bytes)"
            }
            MemoryFault::LengthLast => "the length must come before `w`, `rw` or `x`",
            MemoryFault::ControlCharacter => "a control character",
            MemoryFault::OpenQuote => "the quote is not closed",
        })
    }
}

/// An error in a [`Memory`]'s text.
pub type MemoryError = TextError<MemoryFault>;

impl<'a> Memory<'a> {
    /// Parses a variable:
    ///
    /// ```
    /// # use tiptoe_event::Memory;
    /// let memory = Memory::parse("redis-server:server.port:4:rw/pinned/").unwrap();
    /// assert_eq!((memory.binary, memory.variable.text), (Some("redis-server"), "server.port"));
    /// assert!(memory.length == Some(4) && memory.is_pinned);
    /// ```
    pub fn parse(text: &'a str) -> Result<Memory<'a>, MemoryError> {
        let place = text.strip_suffix(PINNED);
        let is_pinned = place.is_some();
        let place = place.unwrap_or(text);
        if let Some(at) = place.find(char::is_control) {
            let fault = MemoryFault::ControlCharacter;
            return Err(MemoryError { at, fault });
        }
        let mut buffer = [TextPart::default(); MOST_PARTS];
        let mut parts = split(place, &mut buffer)?;
        let access = take_access(&mut parts)?;
        let length = take_length(&mut parts, access)?;
        let (binary, variable) = match *parts {
            [variable] => (None, variable),
            [binary, _] if binary.text.is_empty() => return binary.fault(MemoryFault::NoBinary),
            [binary, variable] => (Some(binary.text), variable),
            _ => return parts[2].fault(MemoryFault::TooManyParts),
        };
        Ok(Memory {
            text,
            binary,
            variable,
            length,
            access: access.unwrap_or(Access::Write),
            is_pinned,
        })
    }
}

/// One part more than allowed.
const MOST_PARTS: usize = 5;

/// The last of [`MOST_PARTS`] parts holds the rest of the text.
fn split<'a, 'b>(
    text: &'a str,
    parts: &'b mut [TextPart<'a>; MOST_PARTS],
) -> Result<&'b [TextPart<'a>], MemoryError> {
    let bytes = text.as_bytes();
    let (mut count, mut start, mut at) = (0, 0, 0);
    while at < bytes.len() && count + 1 < MOST_PARTS {
        let run = bytes[at..].iter().take_while(|&&byte| byte == b':').count();
        match bytes[at] {
            b'\'' => match text[at + 1..].find('\'') {
                Some(length) => at += length + 2,
                None => {
                    let fault = MemoryFault::OpenQuote;
                    return Err(MemoryError { at, fault });
                }
            },
            // A run of three is a single colon and a `::`, as in [`crate::single_colon`].
            b':' => {
                if run % 2 == 1 {
                    let text = &text[start..at];
                    parts[count] = TextPart { text, at: start };
                    count += 1;
                    start = at + 1;
                }
                at += run;
            }
            _ => at += 1,
        }
    }
    let text = &text[start..];
    parts[count] = TextPart { text, at: start };
    Ok(&parts[..=count])
}

fn take_access(parts: &mut &[TextPart<'_>]) -> Result<Option<Access>, MemoryError> {
    let [before @ .., last] = *parts else {
        return Ok(None);
    };
    let access = match last.text {
        _ if before.is_empty() => return Ok(None),
        "w" => Access::Write,
        "rw" => Access::ReadWrite,
        "x" => Access::Execute,
        "r" => return last.fault(MemoryFault::ReadOnly),
        "wr" | "rx" | "wx" | "rwx" => return last.fault(MemoryFault::BadAccess),
        _ => return Ok(None),
    };
    *parts = before;
    Ok(Some(access))
}

fn take_length(
    parts: &mut &[TextPart<'_>],
    access: Option<Access>,
) -> Result<Option<u8>, MemoryError> {
    let [others @ .., before, last] = *parts else {
        return Ok(None);
    };
    if last.text.is_empty() || !last.text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let length = last.text.parse().ok();
    let Some(length) = length.filter(|length| LENGTHS.contains(length)) else {
        return last.fault(MemoryFault::BadLength);
    };
    let is_access = ["r", "w", "rw", "x"].contains(&before.text);
    if access.is_none() && is_access && !others.is_empty() {
        return last.fault(MemoryFault::LengthLast);
    }
    *parts = &parts[..=others.len()];
    Ok(Some(length))
}
