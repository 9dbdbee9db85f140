//! Functions and their names, out of the bytes of an ELF file.
//!
//! An [`Image`] is one program or library. Its functions come from four
//! places, because no single one knows them all: symbol tables (the file's
//! own, a separate debug file's, or MiniDebugInfo's) name local functions but
//! are usually stripped; the dynamic table names what is exported; `.eh_frame`
//! knows where every compiled function begins and how long it is, but not what
//! it is called. Merged by address they give one list: aliases are one
//! function, and a function without a name is known by its address.
//!
//! Three address-like numbers are kept apart: a *link-time address* is what
//! the file's tables speak of, an *offset* is a position in the file, and only
//! the caller knows a process's *run-time addresses* (an offset plus a
//! mapping's start).
//!
//! This crate makes no system call: it takes bytes, and fetches separate debug
//! files through a [`DebugSource`]. The bytes are hostile: a traced process
//! may map whatever it likes. Every read is checked, memory stays proportional
//! to the file (MiniDebugInfo: a fixed limit), no loop depends on a number that
//! the file merely claims, and expansion of names is cut off.
//!
//! Cost (a busy two-core virtual machine; libLLVM-14, 110 MB, 94,994 functions):
//! parsing 183 ms, a symbol by its name microseconds, a pattern or a name that
//! must be compared demangled 0.5 s at worst. Measured by
//! `TIPTOE_TIME_FILE=FILE cargo test -p tiptoe-symbol --release --test real -- --ignored --nocapture time`.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod debug;
mod demangle;
mod depths;
mod elf;
mod error;
mod find;
mod frames;
mod function;
mod glob;
mod header;
mod hint;
mod image;
mod layout;
mod merge;
mod slots;
mod tables;
mod xz;

pub use debug::{Bytes, DebugLink, DebugSource, NoDebugFiles};
pub use depths::depths;
pub use error::Error;
pub use function::{Function, Kind, Source};
pub use header::{Class, Header, Machine};
pub use image::Image;
pub use layout::{Layout, Segment};
