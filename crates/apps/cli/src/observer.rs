//! Prints what the driver (which runs the trace) reports: intervals, calls, accesses and notes (limits of the
//! result).

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use tiptoe_collector::{Observer, Progress};
use tiptoe_report::{LiveNotes, Options};
use tiptoe_session::{Access, Call, Interval, Note};

use crate::failure::Failure;
use crate::output::{NotesTo, Output};
use crate::status;
use crate::terminal::{self, AboveStatusLine};

pub struct Terminal {
    to_stdout: bool,
    is_json: bool,
    options: Options,
    calls_options: Options,
    calls: LiveLines,
}

/// Writes lines that precede the report to the report's output, and notes to stderr.
pub struct LiveLines {
    to: Box<dyn Write>,
    /// `None` if notes are only for the report.
    notes: Option<LiveNotes>,
    /// Ends the run. The flag is set if a line cannot be written, because the reader closed the pipe or the disk is
    /// full.
    stop: Arc<AtomicBool>,
}

impl LiveLines {
    /// Fails if the descriptor of `output` cannot be duplicated.
    pub fn new(
        output: &Output,
        notes: NotesTo,
        stop: Arc<AtomicBool>,
    ) -> Result<LiveLines, Failure> {
        Ok(LiveLines {
            to: output.stream()?,
            notes: (notes == NotesTo::Stderr).then(LiveNotes::default),
            stop,
        })
    }

    pub fn write(&mut self, lines: io::Result<String>) {
        let written = lines.and_then(|lines| {
            self.to.write_all(lines.as_bytes())?;
            self.to.flush()
        });
        self.stop_if_lost(written);
    }

    pub fn note(&mut self, note: &Note) {
        if let Some(line) = self.notes.as_mut().and_then(|notes| notes.line(note)) {
            terminal::say(line);
        }
    }

    fn stop_if_lost(&self, written: io::Result<()>) {
        if written.is_err() {
            // Relaxed: the flag orders no other data.
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Terminal {
    /// Intervals never go to the report's file.
    pub fn new(
        output: &Output,
        notes: NotesTo,
        is_json: bool,
        stop: Arc<AtomicBool>,
    ) -> Result<Terminal, Failure> {
        let to_stdout = matches!(output, Output::Stdout);
        let options = match to_stdout {
            true => terminal::options_of(&io::stdout()),
            false => terminal::options(),
        };
        Ok(Terminal {
            to_stdout,
            is_json,
            options,
            calls_options: output.options(None),
            calls: LiveLines::new(output, notes, stop)?,
        })
    }

    fn lines<T: Serialize>(
        &self,
        all: &[T],
        text: impl Fn(&T, &Options) -> String,
        options: &Options,
    ) -> io::Result<String> {
        let line = |one| match self.is_json {
            true => Ok(tiptoe_report::json_line(one)?),
            false => Ok(text(one, options) + "\n"),
        };
        all.iter().map(line).collect()
    }
}

impl Observer for Terminal {
    fn interval(&mut self, interval: &Interval) {
        let all = std::slice::from_ref(interval);
        let line = self.lines(all, tiptoe_report::interval, &self.options);
        let written = line.and_then(|line| match self.to_stdout {
            true => AboveStatusLine(io::stdout()).write_all(line.as_bytes()),
            false => terminal::for_reports().write_all(line.as_bytes()),
        });
        self.calls.stop_if_lost(written);
    }

    fn calls(&mut self, calls: &[Call<'_>]) {
        let lines = self.lines(calls, tiptoe_report::call, &self.calls_options);
        self.calls.write(lines);
    }

    fn accesses(&mut self, accesses: &[Access<'_>]) {
        let lines = self.lines(accesses, tiptoe_report::access, &self.calls_options);
        self.calls.write(lines);
    }

    fn wants_progress(&mut self) -> bool {
        status::wants_progress()
    }

    fn progress(&mut self, progress: &Progress) {
        status::put(progress);
    }

    fn note(&mut self, note: &Note) {
        self.calls.note(note);
    }
}
