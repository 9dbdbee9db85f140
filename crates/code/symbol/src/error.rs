//! Why a function is not found in the bytes of a file.

use thiserror::Error;

/// The reason why an image could not be read, or a function not found in it.
///
/// The text is one line. Parts that a caller may phrase differently (nearest names, how to get
/// symbols) are also fields.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin as ELF.
    #[error("not an ELF file")]
    NotElf,
    /// The ELF file is for another processor.
    #[error("built for {machine}, but tiptoe traces x86-64 (and, through the kernel, i386)")]
    ArchitectureMismatch {
        /// The other processor, by name if known.
        machine: String,
    },
    /// The ELF file is no program or library but an object or a core file.
    #[error("neither a program nor a shared library (ELF type {elf_type})")]
    NotLoadable {
        /// The header's `e_type`.
        elf_type: u16,
    },
    /// The file contradicts itself.
    #[error("damaged ELF file: {what}")]
    Damaged {
        /// The inconsistent part.
        what: String,
    },
    /// No function has this name.
    #[error("no function `{name}`{}", suggestion(nearest))]
    NoSuchFunction {
        /// The requested name.
        name: String,
        /// The most similar names, the best first.
        nearest: Vec<String>,
    },
    /// No function matches the pattern.
    #[error("no function matches `{pattern}`")]
    NoMatch {
        /// The requested pattern.
        pattern: String,
    },
    /// The name belongs to a variable.
    #[error("`{name}` is data, not a function")]
    IsData {
        /// The requested name.
        name: String,
    },
    /// A `0x…` that is no number, or an address outside executable code.
    #[error("`{text}` is not an address in the executable part of the file")]
    BadAddress {
        /// The requested text.
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

/// Returns an error for `map_err`: `what` cannot be read.
pub(crate) fn damaged(what: &str) -> impl FnOnce(object::read::Error) -> Error {
    move |error| Error::Damaged {
        what: format!("{what}: {error}"),
    }
}
