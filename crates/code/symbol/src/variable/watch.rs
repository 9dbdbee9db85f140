//! A [`Memory`] event with its expression parsed.

use std::fmt;

use tiptoe_event::{Access, Memory};

use super::expression::Expression;
use crate::error::watch_error::WatchError;

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

impl Watch {
    /// Parses a watch.
    pub fn parse(text: &str) -> Result<Watch, WatchError> {
        Watch::of(&Memory::parse(text)?)
    }

    /// Parses the expression of an event's variable.
    pub fn of(memory: &Memory<'_>) -> Result<Watch, WatchError> {
        let variable = memory.variable;
        let within = |error: WatchError| WatchError {
            at: error.at + variable.at,
            ..error
        };
        Ok(Watch {
            binary: memory.binary.map(str::to_owned),
            expression: Expression::parse(variable.text).map_err(within)?,
            length: memory.length,
            access: memory.access,
        })
    }
}

/// Writes text that parses to the same watch.
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
        use super::super::WatchFault as F;
        use tiptoe_event::MemoryFault as M;
        let outside = F::Memory;
        let check = |text: &str, at, fault| {
            assert_eq!(Watch::parse(text), Err(WatchError { at, fault }), "{text}");
        };
        check("", 0, F::NoVariable);
        check("bin:", 4, F::NoVariable);
        check(":variable", 0, outside(M::NoBinary));
        check("a:b:c", 4, outside(M::TooManyParts));
        check("x:r", 2, outside(M::ReadOnly));
        check("x:8:r", 4, outside(M::ReadOnly));
        check("x:rwx", 2, outside(M::BadAccess));
        check("x:3", 2, outside(M::BadLength));
        check("x:16", 2, outside(M::BadLength));
        check("x:99999999999999999999", 2, outside(M::BadLength));
        check("x:w:8", 4, outside(M::LengthLast));
        check("a\nb", 1, outside(M::ControlCharacter));
        check("b:'x", 2, outside(M::OpenQuote));
        check("bin:x.", 6, F::NoName);
        let error = Watch::parse("x:r").unwrap_err().to_string();
        assert!(
            error.contains("`rw`") && error.ends_with("(at character 3)"),
            "{error}"
        );
    }
}
