//! The status line, the last line on stderr if stderr is a terminal. The line is erased before anything else is
//! printed, and drawn again below the printed text.
//!
//! [`IS_ON`] is false without a terminal, so that all functions return at once.
//!
//! INVARIANT: a thread holds [`SHOWN`] while it writes to the terminal, so that the line is never inside other
//! text. While the terminal takes no output (Ctrl-S), such a thread holds the lock without end. So the thread that
//! draws must never wait for the lock, because it must also end the trace when a signal arrives.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{takes_a_line, write_raw};

const ERASE: &str = "\r\x1b[K";

// Relaxed: the flag orders no other data.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The line's text; empty if there is no line.
static SHOWN: Mutex<String> = Mutex::new(String::new());

pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// stderr must be a terminal.
pub fn turn_on() {
    IS_ON.store(true, Relaxed);
}

/// Draws `text`, or erases the line if `text` is empty. Returns `false` instead of waiting for another writer or for a
/// terminal that takes no output.
pub fn try_draw(text: &str) -> bool {
    let Ok(mut shown) = SHOWN.try_lock() else {
        return false;
    };
    let is_empty = text.is_empty() && shown.is_empty();
    // Another thread may just have ended the line. The terminal is checked last, because it takes system calls.
    if !is_on() || is_empty || !takes_a_line() {
        return false;
    }
    if text.is_empty() {
        erase_locked(&mut shown);
    } else if *shown != text {
        draw_locked(&mut shown, text.to_owned());
    }
    true
}

pub fn erase() {
    erase_locked(&mut shown());
}

/// Erases the line for good.
pub fn end() {
    if is_on() {
        end_locked(&mut shown());
    }
}

/// Erases the line for good, or does nothing if that would wait.
pub fn end_without_waiting() {
    if is_on()
        && let Ok(mut shown) = SHOWN.try_lock()
        && (shown.is_empty() || takes_a_line())
    {
        end_locked(&mut shown);
    }
}

/// Disables the line. A panicking thread must call this before it prints, because it may hold the line's lock and would
/// deadlock.
pub fn give_up() {
    IS_ON.store(false, Relaxed);
}

/// Erases the line, calls `write`, and draws the line again if the written text `ends_line`.
pub fn with_line_erased<R>(ends_line: bool, write: impl FnOnce() -> R) -> R {
    if !is_on() {
        return write();
    }
    let mut shown = shown();
    let text = erase_locked(&mut shown);
    let written = write();
    if ends_line && !text.is_empty() {
        draw_locked(&mut shown, text);
    }
    written
}

pub struct AboveStatusLine<W>(pub W);

impl<W: Write> Write for AboveStatusLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        with_line_erased(bytes.ends_with(b"\n"), || self.0.write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        with_line_erased(bytes.ends_with(b"\n"), || {
            self.0.write_all(bytes).and_then(|()| self.0.flush())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn shown() -> MutexGuard<'static, String> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws the line, and leaves the cursor at its beginning, so that an echoed `^C` is erased with the line.
fn draw_locked(shown: &mut String, text: String) {
    write_raw(&format!("\r{text}\x1b[K\r"));
    *shown = text;
}

fn erase_locked(shown: &mut String) -> String {
    if !shown.is_empty() {
        write_raw(ERASE);
    }
    std::mem::take(shown)
}

fn end_locked(shown: &mut String) {
    erase_locked(shown);
    IS_ON.store(false, Relaxed);
}
