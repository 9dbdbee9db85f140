//! A text that names the functions to observe.
//!
//! ```text
//! SPEC     = [KIND ":"] [BINARY ":"] FUNCTION ["+" OFFSET] ["/" OPTION {"," OPTION} "/"]
//! KIND     = "uprobe" | "uretprobe"
//! BINARY   = a path, a soname or a glob; without it, the program itself
//! FUNCTION = a symbol, a glob, or "0x" and an offset
//! OPTION   = NAME ["=" VALUE]; no option exists yet
//! ```
//!
//! In a glob `*` is any text, `?` one character. `[` is literal, because names contain it: `operator[]`.
//!
//! A `:` in a `::` or inside matched brackets separates no parts. Other names with a single colon (Go's
//! `type:.eq.main.T`, a library `a:b.so`) look like a binary and a function. So a caller that knows the names must take
//! the first of [`Spec::readings`] whose names exist.
//!
//! A [`Spec`]'s `Display`, the *resolved* form, names the kind (`uprobe:redis-server:dictFind`) and parses to the same
//! value. A text that begins with the word of [another kind](OtherKind) is refused. So a function of a program named
//! `mem` is `uprobe:mem:f`.

use core::fmt;

/// A probe's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A function's entry (the default), or an instruction inside.
    Uprobe,
    /// A function's return.
    Uretprobe,
}

impl Kind {
    /// Returns the kind's word.
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Uprobe => "uprobe",
            Kind::Uretprobe => "uretprobe",
        }
    }

    /// Returns the kind with this word.
    pub fn of_word(word: &str) -> Option<Kind> {
        let all = [Self::Uprobe, Self::Uretprobe];
        all.into_iter().find(|kind| kind.word() == word)
    }
}

/// The kind of an event that is no probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OtherKind {
    /// A static tracepoint of the program.
    Usdt,
    /// A variable or address in memory.
    Mem,
    /// A lock of the program.
    Ulock,
    /// A lock of the kernel.
    Klock,
}

impl OtherKind {
    /// Returns the kind's word.
    pub const fn word(self) -> &'static str {
        match self {
            OtherKind::Usdt => "usdt",
            OtherKind::Mem => "mem",
            OtherKind::Ulock => "ulock",
            OtherKind::Klock => "klock",
        }
    }

    /// Returns the kind with this word.
    pub fn of_word(word: &str) -> Option<OtherKind> {
        let all = [Self::Usdt, Self::Mem, Self::Ulock, Self::Klock];
        all.into_iter().find(|kind| kind.word() == word)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The code to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function<'a> {
    /// A symbol, as in the file or demangled.
    Name(&'a str),
    /// All symbols that match ([`is_glob`]).
    Glob(&'a str),
    /// An offset in the binary.
    Offset(u64),
}

impl fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Name(text) | Function::Glob(text) => f.write_str(text),
            Function::Offset(offset) => write!(f, "{offset:#x}"),
        }
    }
}

/// A probe's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec<'a> {
    /// The kind.
    pub kind: Kind,
    /// The file that has the code; `None` for the program itself.
    pub binary: Option<&'a str>,
    /// The code.
    pub function: Function<'a>,
    /// The offset from the function's entry in bytes.
    pub offset: u64,
}

impl<'a> Spec<'a> {
    /// Returns the spec of a function's entry.
    pub fn uprobe(binary: Option<&'a str>, function: Function<'a>) -> Spec<'a> {
        Spec {
            kind: Kind::Uprobe,
            binary,
            function,
            offset: 0,
        }
    }
}

/// A requested probe, whose text may have other readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProbeSpec<'a> {
    /// The text as given.
    pub text: &'a str,
    /// The first reading of the text.
    pub spec: Spec<'a>,
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
        Ok(())
    }
}

/// Returns whether a name contains `*` or `?`.
pub fn is_glob(text: &str) -> bool {
    text.contains(['*', '?'])
}
