//! The only module that writes to stderr; `cargo test -p xtask` refuses others.
//!
//! A message may contain a name from a traced program (a thread, library or folder), which could control the
//! user's terminal. So [`say`] escapes line ends and each character that a terminal would obey. `tiptoe-report`
//! escapes reports.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use tiptoe_report::Options;
use tiptoe_sys::host::terminal::takes_a_line as takes;

use crate::notice::Notice;

pub mod line;

pub use line::AboveStatusLine;

/// Prints one line, escaped and wrapped.
pub fn say(line: impl Display) {
    let line = line.to_string();
    let options = match line.starts_with('#') {
        // A comment must remain one line for scripts.
        true => Options::default(),
        false => options(),
    };
    let line = tiptoe_report::message(&line, &options) + "\n";
    // A failure to write to stderr cannot be reported.
    let _ = line::with_line_erased(true, || io::stderr().write_all(line.as_bytes()));
}

/// Returns a writer for printable text: a report and the lines before it.
pub fn for_reports() -> impl Write + 'static {
    AboveStatusLine(io::stderr())
}

/// Writes unescaped text, which must be printable or our own control sequence.
pub fn write_raw(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

pub fn is_there() -> bool {
    io::stderr().is_terminal()
}

/// Returns whether stderr, which must be a terminal, takes a line without waiting.
pub fn takes_a_line() -> bool {
    takes(io::stderr())
}

pub fn options() -> Options {
    options_of(&io::stderr())
}

pub fn options_of(stream: &impl RawStream) -> Options {
    let size = terminal_size::terminal_size().filter(|_| stream.is_terminal());
    let is_colored = stream.is_terminal() && AutoStream::choice(stream) != ColorChoice::Never;
    Options {
        width: size.map(|(width, _)| usize::from(width.0)),
        height: size.map(|(_, height)| usize::from(height.0)),
        color: is_colored || is_always_colored(),
        ..Options::default()
    }
}

pub fn is_always_colored() -> bool {
    ColorChoice::global() == ColorChoice::Always
}

/// Reports a panic as a fault of tiptoe. The panic's message must be escaped, because it may quote a traced program.
pub fn say_panic(panic: &PanicHookInfo<'_>) {
    line::give_up();
    let place = panic.location().map(|place| format!(" at {place}"));
    say(Notice::Panicked {
        place: place.unwrap_or_default(),
        why: panic.payload_as_str().unwrap_or("no reason"),
    });
    say(Notice::Fault);
    let trace = std::backtrace::Backtrace::capture();
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        trace.to_string().lines().for_each(say);
    }
}
