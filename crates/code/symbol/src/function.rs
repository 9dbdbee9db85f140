use std::borrow::Cow;

use crate::demangle::{demangle, shown};

/// Where a function was found, the most trusted place first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The file's own symbol table.
    Symtab,
    /// The dynamic symbol table.
    Dynsym,
    /// A separate debug file.
    DebugFile,
    /// A compressed symbol table in the file.
    MiniDebugInfo,
    /// Unwind information, without names.
    EhFrame,
    /// Only the requested address.
    Address,
}

/// What a function's code is. Only plain functions can be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An ordinary function.
    Plain,
    /// Stubs of a procedure linkage table.
    Plt,
    /// The code that signal handlers return to.
    SignalReturn,
}

/// A function, or a nameless piece of code with unwind information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The link-time address.
    pub address: u64,
    /// The code's offset in the file.
    pub offset_in_file: u64,
    /// The size in bytes, or 0 if unknown.
    pub size: u64,
    /// Linker names without versions, the best to show first.
    pub names: Vec<Box<str>>,
    /// Whether it is a resolver, which the loader calls to select the real function.
    pub is_ifunc: bool,
    /// Whether it is a rarely run part (`f.cold`). Globs exclude it, because it is jumped to, not called.
    pub is_cold: bool,
    /// Whether it is an unwinder's entry, which reads callers' frames.
    pub is_unwinder: bool,
    /// Whether unwinding ends at this function. Such a function may be entered without a call.
    pub is_outermost: bool,
    /// The most trusted source.
    pub source: Source,
    /// The kind of code.
    pub kind: Kind,
}

impl Function {
    /// Returns the demangled name without parameters, else `0x…`.
    pub fn display_name(&self) -> Cow<'_, str> {
        match self.names.first() {
            None => Cow::Owned(self.hex()),
            Some(name) => shown(name),
        }
    }

    /// Returns the name that is unique among overloads: `ns::f(int)` in C++, with the hash in Rust.
    pub fn full_name(&self) -> Option<String> {
        self.names
            .iter()
            .find_map(|name| Some(demangle(name)?.full))
    }

    /// Returns the link-time address as `0x…`, which [`Image::find`](crate::Image::find) accepts.
    pub fn hex(&self) -> String {
        format!("{:#x}", self.address)
    }

    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

pub(crate) fn is_cold_name(name: &str) -> bool {
    name.ends_with(".cold") || name.contains(".cold.")
}

/// Returns whether a name is that of a function or a copy (`f.isra.0`), not of a part (`f.cold`, `f.part.0`).
pub(crate) fn is_whole(name: &str) -> bool {
    let (_, part) = name.rsplit_once(".part.").unwrap_or_default();
    !is_cold_name(name) && !part.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_separated_from_copies() {
        let check = |name, whole| assert_eq!(is_whole(name), whole, "{name}");
        check("f", true);
        check("f.isra.0", true);
        check("f.part.0", false);
        check("f.cold", false);
        check("f.isra.0.cold", false);
        check("f.cold.3", false);
        check("f.cold_start", true);
    }
}
