//! What is known about one function.

use std::borrow::Cow;

use crate::demangle::demangle;

/// Where a function was learnt from; the earlier ones are trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The file's own symbol table.
    Symtab,
    /// The dynamic symbol table: what the file exports.
    Dynsym,
    /// A separate debug file.
    DebugFile,
    /// MiniDebugInfo: a compressed symbol table inside the file.
    MiniDebugInfo,
    /// Unwind information: an address and a size, no name.
    EhFrame,
    /// Nothing but the address that was asked for.
    Address,
}

/// What kind of code it is: most is plain, the rest cannot be probed like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An ordinary function.
    Plain,
    /// The procedure linkage table: stubs of lazy binding, not functions.
    Plt,
    /// A trampoline to which signal handlers return.
    SignalReturn,
}

/// A function, or a nameless piece of code that unwind information describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its link-time address.
    pub address: u64,
    /// Where its first byte is in the file.
    pub offset_in_file: u64,
    /// Its length in bytes, 0 where nothing tells.
    pub size: u64,
    /// All its names as the linker knows them, the best to show first; without
    /// symbol versions. Empty where it has none.
    pub names: Vec<Box<str>>,
    /// The address is that of a resolver, which selects the real function once
    /// (see [`Image::ifunc_slots`](crate::Image::ifunc_slots)).
    pub is_ifunc: bool,
    /// A part that was split off because it is rarely run (`f.cold`): it is
    /// jumped to, never called, and globs leave it out.
    pub is_cold: bool,
    /// An entry of an unwinder, named or not: it looks at its callers' frames.
    pub is_unwinder: bool,
    /// Unwinding ends there: it may be entered without a call.
    pub is_outermost: bool,
    /// The most trusted source that knows of it.
    pub source: Source,
    /// What kind of code it is.
    pub kind: Kind,
}

impl Function {
    /// The name to show: demangled, without parameters; `0x…` (the link-time
    /// address) for a function without names.
    pub fn display_name(&self) -> Cow<'_, str> {
        match self.names.first() {
            None => Cow::Owned(self.hex()),
            Some(name) => match demangle(name) {
                Some(form) => Cow::Owned(form.bare),
                None => Cow::Borrowed(name),
            },
        }
    }

    /// What tells it from others of the same name: `ns::f(int)` in C++, with the hash in
    /// Rust; none for other names.
    pub fn full_name(&self) -> Option<String> {
        self.names
            .iter()
            .find_map(|name| Some(demangle(name)?.full))
    }

    /// The link-time address as `0x…`, by which it can always be asked for.
    pub fn hex(&self) -> String {
        format!("{:#x}", self.address)
    }

    /// The address behind its last byte.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// Whether a symbol's name says that it is a split-off cold part.
pub(crate) fn is_cold_name(name: &str) -> bool {
    name.ends_with(".cold") || name.contains(".cold.")
}

/// Whether a symbol stands for a whole function: for the one that it names, or
/// the compiler's copy of it (`f.isra.0`, `f.constprop.1`), but no part of it.
pub(crate) fn is_whole(name: &str) -> bool {
    let (_, part) = name.rsplit_once(".part.").unwrap_or_default();
    !is_cold_name(name) && !part.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_from_copies() {
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
