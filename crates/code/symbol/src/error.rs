//! Everything that can go wrong between a file's bytes and a function.

use thiserror::Error;

/// Why an image could not be read, or a function not found in it.
///
/// The text is one clear line; what a caller may want to phrase differently
/// (the nearest names, how to get symbols) is also there as data.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin like an ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// An ELF file for another processor.
    #[error("built for {machine}, but tiptoe traces x86-64 (and, through the kernel, i386)")]
    ArchitectureMismatch {
        /// The other processor, by name where it is known.
        machine: String,
    },
    /// An ELF file that is no program and no library: an object or a core file.
    #[error("neither a program nor a shared library (ELF type {elf_type})")]
    NotLoadable {
        /// The header's `e_type`.
        elf_type: u16,
    },
    /// The file contradicts itself.
    #[error("damaged ELF file: {what}")]
    Damaged {
        /// The part that does not hold together.
        what: String,
    },
    /// No function has this name.
    #[error("no function `{name}`{}", suggestion(nearest))]
    NoSuchFunction {
        /// The name as it was asked for.
        name: String,
        /// The names that come nearest, the best first.
        nearest: Vec<String>,
    },
    /// A pattern with wildcards that fits no function.
    #[error("no function matches `{pattern}`")]
    NoMatch {
        /// The pattern as it was asked for.
        pattern: String,
    },
    /// The name belongs to a variable.
    #[error("`{name}` is data, not a function")]
    IsData {
        /// The name as it was asked for.
        name: String,
    },
    /// A `0x…` that is no number, or lies in no executable part of the file.
    #[error("`{text}` is not an address in the executable part of the file")]
    BadAddress {
        /// The text as it was asked for.
        text: String,
    },
}

fn suggestion(nearest: &[String]) -> String {
    let quoted: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
    match quoted.is_empty() {
        true => String::new(),
        false => format!("; the nearest: {}", quoted.join(", ")),
    }
}

/// For use with `map_err`: the part `what` of the file cannot be read.
pub(crate) fn damaged(what: &str) -> impl FnOnce(object::read::Error) -> Error {
    move |error| Error::Damaged {
        what: format!("{what}: {error}"),
    }
}
