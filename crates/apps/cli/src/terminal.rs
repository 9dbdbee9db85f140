//! The one door to stderr. `cargo test -p xtask` refuses any other.
//!
//! A message may hold what a traced program named (a thread, a library, a folder), so [`say`] shows each
//! character that a terminal would obey as an escape, ends of lines too. Reports are made printable by
//! `tiptoe-report`, line by line, before they come here.

use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;

use tiptoe_event::Printable;

/// Says one line. Nobody can be told where that fails.
pub fn say(line: &str) {
    let line = format!("{}\n", Printable(line));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Where a report goes, and the lines before it, that is printable already.
pub fn for_reports() -> impl Write + 'static {
    io::stderr()
}

/// Whether somebody reads it as it comes.
pub fn is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Says that tiptoe is at fault: a panic's words may quote what a traced program wrote.
pub fn say_panic(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(|place| format!(" at {place}"));
    let why = panic.payload_as_str().unwrap_or("no reason");
    say(&format!(
        "error: tiptoe failed{}: {why}",
        place.unwrap_or_default()
    ));
    say("hint: this is a fault of tiptoe's own: please report it, with this line");
    let trace = std::backtrace::Backtrace::capture();
    if trace.status() == std::backtrace::BacktraceStatus::Captured {
        trace.to_string().lines().for_each(say);
    }
}
