//! All messages of this crate.

use thiserror::Error;

pub(crate) mod hint;
pub(crate) mod variable_error;
pub(crate) mod watch_error;

/// A one-line reason why an image could not be read, or why a function was not found.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// Not ELF.
    #[error("not an ELF file")]
    NotElf,
    /// For another processor.
    #[error("built for {}, but tiptoe traces x86-64 (and, through the kernel, i386)", machine_name(*machine))]
    ArchitectureMismatch {
        /// `e_machine`.
        machine: u16,
    },
    /// An object or a core file.
    #[error("neither a program nor a shared library (ELF type {elf_type})")]
    NotLoadable {
        /// `e_type`.
        elf_type: u16,
    },
    /// The file contradicts itself.
    #[error("damaged ELF file: headers: {0}")]
    BadHeaders(object::read::Error),
    /// The headers would take too long to compare.
    #[error("damaged ELF file: more headers, or longer names of sections, than a program has")]
    TooManyHeaders,
    /// No function has this name.
    #[error("no function `{name}`{}", suggestion(nearest))]
    NoSuchFunction {
        /// The requested text.
        name: String,
        /// The most similar names, best first.
        nearest: Vec<String>,
    },
    /// No function matches.
    #[error("no function matches `{pattern}`")]
    NoMatch {
        /// The requested text.
        pattern: String,
    },
    /// The name is a variable's.
    #[error("`{name}` is data, not a function")]
    IsData {
        /// The requested text.
        name: String,
    },
    /// The text is no number, or the address is outside executable code.
    #[error("`{text}` is not an address in the executable part of the file")]
    BadAddress {
        /// The requested text.
        text: String,
    },
}

/// Reading the debug information takes longer than its size justifies, or than users wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("its debug information takes too long to read")]
pub struct BudgetExceeded;

fn suggestion(nearest: &[String]) -> String {
    match nearest.is_empty() {
        true => String::new(),
        false => format!("; the nearest: {}", quoted(nearest).join(", ")),
    }
}

fn quoted(names: &[String]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

/// Programs into which tiptoe cannot inject its library.
pub(crate) mod kind {
    pub(crate) const X86: &str = "32-bit program";
    pub(crate) const X32: &str = "x32 program";
    pub(crate) const STATIC: &str = "statically linked program";
}

fn machine_name(machine: u16) -> String {
    let known = match machine {
        3 => "i386",
        8 => "MIPS",
        20 => "PowerPC",
        21 => "PowerPC64",
        22 => "s390",
        40 => "ARM",
        43 => "SPARC",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        other => return format!("ELF machine {other}"),
    };
    known.to_owned()
}
