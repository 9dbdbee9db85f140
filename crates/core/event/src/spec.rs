//! The event grammar: what one event observes, as text.
//!
//! ```text
//! SPEC     = [KIND ":"] [BINARY ":"] FUNCTION ["+" OFFSET] ["/" OPTION {"," OPTION} "/"]
//! KIND     = "uprobe" | "uretprobe" | "usdt" | "mem" | "ulock" | "klock"
//! BINARY   = a path, a soname or a glob; without it, the program itself
//! FUNCTION = a symbol, a glob, or "0x" and an offset
//! OPTION   = NAME ["=" VALUE]
//! ```
//!
//! A glob has `*` for any text or `?` for one character. `[` is literal, because names such as
//! `f[abi:cxx11]`, `main.Map[int]` and `operator[]` contain it.
//!
//! A `:` that belongs to a `::`, or is between closed brackets, never splits. Other names with a
//! single colon (Go's `type:.eq.main.T`, a library `a:b.so`) look like a binary and a function. So
//! [`Spec::readings`] returns all ways to read a spec; a caller that knows the names must take the
//! first that exists.
//!
//! A [`Spec`] borrows its text. Its `Display`, the *resolved* form, names the kind
//! (`uprobe:redis-server:dictFind`) and parses to the same value.
//!
//! Kinds other than probes stay [`Function::Unparsed`] text, which a driver can name as
//! unsupported.

use core::fmt;

use crate::spec_parse::{self, SpecError};

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The entry of a function (the default), or an instruction within it.
    Uprobe,
    /// The return of a function.
    Uretprobe,
    /// A statically defined tracepoint of the program.
    Usdt,
    /// A variable or address in memory.
    Mem,
    /// A lock of the program.
    Ulock,
    /// A lock of the kernel.
    Klock,
}

impl Kind {
    /// All kinds.
    const ALL: [Kind; 6] = [
        Kind::Uprobe,
        Kind::Uretprobe,
        Kind::Usdt,
        Kind::Mem,
        Kind::Ulock,
        Kind::Klock,
    ];

    /// Returns the kind's word in a spec, before the first `:`.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Uprobe => "uprobe",
            Kind::Uretprobe => "uretprobe",
            Kind::Usdt => "usdt",
            Kind::Mem => "mem",
            Kind::Ulock => "ulock",
            Kind::Klock => "klock",
        }
    }

    /// Returns the kind with this word.
    pub fn of_word(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Returns whether `[BINARY:]FUNCTION[+OFFSET]` follows the kind.
    pub const fn is_probe(self) -> bool {
        matches!(self, Kind::Uprobe | Kind::Uretprobe)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The observed code in the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function<'a> {
    /// One symbol by its name, as in the file or demangled.
    Name(&'a str),
    /// Every symbol that a pattern matches (see [`is_glob`]).
    Glob(&'a str),
    /// A place by its offset in the binary.
    Offset(u64),
    /// The text after a [`Kind`] that is no probe.
    Unparsed(&'a str),
}

impl fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Name(text) | Function::Glob(text) | Function::Unparsed(text) => {
                f.write_str(text)
            }
            Function::Offset(offset) => write!(f, "{offset:#x}"),
        }
    }
}

/// The options after a spec, `/latency,by=arg0/`, without the slashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options<'a> {
    pub(crate) text: &'a str,
}

impl<'a> Options<'a> {
    /// Returns whether there are no options.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns each option's name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a str>)> + use<'a> {
        let listed = (!self.text.is_empty()).then(|| self.text.split(','));
        listed
            .into_iter()
            .flatten()
            .map(|option| match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            })
    }
}

/// One parsed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec<'a> {
    /// The kind.
    pub kind: Kind,
    /// A path, a soname or a glob; `None` for the program itself.
    pub binary: Option<&'a str>,
    /// The observed code.
    pub function: Function<'a>,
    /// Bytes after the function's start; 0 is its entry.
    pub offset: u64,
    /// Further options.
    pub options: Options<'a>,
}

impl<'a> Spec<'a> {
    /// Parses a spec.
    pub fn parse(text: &'a str) -> Result<Spec<'a>, SpecError> {
        spec_parse::parse(text)
    }

    /// Returns all ways to read a spec: first as [`parse`](Spec::parse) does, then with each other
    /// single colon as the end of the binary, then without a binary.
    pub fn readings(text: &'a str) -> impl Iterator<Item = Result<Spec<'a>, SpecError>> {
        spec_parse::readings(text)
    }

    /// Returns a spec of a function's entry.
    pub fn uprobe(binary: Option<&'a str>, function: Function<'a>) -> Spec<'a> {
        Spec {
            kind: Kind::Uprobe,
            binary,
            function,
            offset: 0,
            options: Options::default(),
        }
    }

    /// Returns a spec of a function's returns.
    pub fn uretprobe(binary: Option<&'a str>, function: Function<'a>) -> Spec<'a> {
        Spec {
            kind: Kind::Uretprobe,
            ..Spec::uprobe(binary, function)
        }
    }
}

impl fmt::Display for Spec<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind)?;
        if let Some(binary) = self.binary {
            write!(f, "{binary}:")?;
        }
        write!(f, "{}", self.function)?;
        if self.offset != 0 {
            write!(f, "+{:#x}", self.offset)?;
        }
        if !self.options.is_empty() {
            write!(f, "/{}/", self.options.text)?;
        }
        Ok(())
    }
}

/// Returns whether a name is a pattern: it contains `*` or `?`.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}
