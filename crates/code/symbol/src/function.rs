//! One function of an image.

use std::borrow::Cow;

use crate::demangle::demangle;

/// The source of a function. Earlier ones are trusted more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// The file's own symbol table.
    Symtab,
    /// The dynamic symbol table, which has exported functions.
    Dynsym,
    /// A separate debug file.
    DebugFile,
    /// MiniDebugInfo: a compressed symbol table inside the file.
    MiniDebugInfo,
    /// Unwind information: an address and a size, no name.
    EhFrame,
    /// Only the requested address.
    Address,
}

/// The kind of code. Only plain functions can be probed normally.
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
    /// The offset of its first byte in the file.
    pub offset_in_file: u64,
    /// Its length in bytes, 0 if unknown.
    pub size: u64,
    /// All its linker names without symbol versions, the best to show first; empty if it has none.
    pub names: Vec<Box<str>>,
    /// Whether the address is a resolver's, which selects the real function once (see
    /// [`Image::ifunc_slots`](crate::Image::ifunc_slots)).
    pub is_ifunc: bool,
    /// Whether it is a part split off because it rarely runs (`f.cold`). It is reached by a jump,
    /// never by a call, so globs exclude it.
    pub is_cold: bool,
    /// Whether it is an unwinder's entry, which reads its callers' frames.
    pub is_unwinder: bool,
    /// Whether unwinding ends there, so that it may be entered without a call.
    pub is_outermost: bool,
    /// The most trusted source that has it.
    pub source: Source,
    /// The kind of code.
    pub kind: Kind,
}

impl Function {
    /// Returns the name to show: demangled, without parameters; `0x…` (the link-time address) if it
    /// has no name.
    pub fn display_name(&self) -> Cow<'_, str> {
        match self.names.first() {
            None => Cow::Owned(self.hex()),
            Some(name) => match demangle(name) {
                Some(form) => Cow::Owned(form.bare),
                None => Cow::Borrowed(name),
            },
        }
    }

    /// Returns the name that is unique among overloads: `ns::f(int)` in C++, with the hash in Rust;
    /// `None` for other names.
    pub fn full_name(&self) -> Option<String> {
        self.names
            .iter()
            .find_map(|name| Some(demangle(name)?.full))
    }

    /// Returns the link-time address as `0x…`, which always finds it.
    pub fn hex(&self) -> String {
        format!("{:#x}", self.address)
    }

    /// Returns the address after its last byte.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }
}

/// Returns whether a symbol's name marks a split-off cold part.
pub(crate) fn is_cold_name(name: &str) -> bool {
    name.ends_with(".cold") || name.contains(".cold.")
}

/// Returns whether a symbol names a whole function, or the compiler's copy of one (`f.isra.0`,
/// `f.constprop.1`), but not a part of one.
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
