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
//! A glob, of either, holds `*` for any text or `?` for one character; each other character is itself, `[` too,
//! because names such as `f[abi:cxx11]`, `main.Map[int]` and `operator[]` have it.
//!
//! A return has no offset: it is the whole function's, wherever it returns from.
//!
//! A `:` that belongs to a `::`, or is between brackets that are closed, never splits, so `ns::f`, `f[abi:cxx11]` and
//! `libstdc++.so.6:std::foo*` mean what they look like. Other names with a single colon (Go's `type:.eq.main.T`, a
//! library `a:b.so`) cannot be told from a binary and a function by their text: [`Spec::readings`] has all ways to
//! read a spec, and who knows the names takes the first that means something. A [`Spec`] borrows the
//! text it was read from, and its `Display` is the *resolved* form, which always
//! names the kind (`uprobe:redis-server:dictFind`) and reads back as the same value.
//!
//! The kinds other than probes keep their place in the grammar as
//! [`Function::Unparsed`] text, so that a driver can name what it does not do.

use core::fmt;

use crate::spec_parse::{self, SpecError};

/// What kind of thing an event observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The entry of a function, or an instruction within it: the default.
    Uprobe,
    /// The return of a function.
    Uretprobe,
    /// A statically defined tracepoint that the program carries.
    Usdt,
    /// A variable or address in memory.
    Mem,
    /// A lock of the program.
    Ulock,
    /// A lock of the kernel.
    Klock,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 6] = [
        Kind::Uprobe,
        Kind::Uretprobe,
        Kind::Usdt,
        Kind::Mem,
        Kind::Ulock,
        Kind::Klock,
    ];

    /// The word in front of the first `:`.
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

    /// Whether what follows is `[BINARY:]FUNCTION[+OFF]`.
    pub const fn is_probe(self) -> bool {
        matches!(self, Kind::Uprobe | Kind::Uretprobe)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Which code within the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function<'a> {
    /// One symbol by its name, as it stands in the file or demangled.
    Name(&'a str),
    /// Every symbol that a pattern matches (see [`is_glob`]).
    Glob(&'a str),
    /// A place without a name, by its offset in the binary.
    Offset(u64),
    /// The whole text behind the prefix of a [`Kind`] that is no probe.
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

/// The options behind a spec, `/latency,by=arg0/`, without the slashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options<'a> {
    pub(crate) text: &'a str,
}

impl<'a> Options<'a> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Each option's name, and its value where it has one, as written.
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

/// One event as its grammar has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec<'a> {
    /// What kind of thing is observed.
    pub kind: Kind,
    /// A path, a soname or a glob; `None` is the program itself.
    pub binary: Option<&'a str>,
    /// Which code.
    pub function: Function<'a>,
    /// Bytes behind the function's first; 0 is its entry.
    pub offset: u64,
    /// What else is asked of the event.
    pub options: Options<'a>,
}

impl<'a> Spec<'a> {
    /// Reads one spec.
    pub fn parse(text: &'a str) -> Result<Spec<'a>, SpecError> {
        spec_parse::parse(text)
    }

    /// All ways to read a spec, the one of [`parse`](Spec::parse) first: with each of its single colons behind the
    /// binary, and without a binary.
    pub fn readings(text: &'a str) -> impl Iterator<Item = Result<Spec<'a>, SpecError>> {
        spec_parse::readings(text)
    }

    /// The entry of a named function: how a driver writes down what a glob resolved to.
    pub fn uprobe(binary: Option<&'a str>, function: Function<'a>) -> Spec<'a> {
        Spec {
            kind: Kind::Uprobe,
            binary,
            function,
            offset: 0,
            options: Options::default(),
        }
    }

    /// The returns of a named function.
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

/// Whether a name is a pattern: it holds `*` or `?`.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}
