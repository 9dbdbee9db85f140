//! Listens to the driver while it runs: interval lines and notes.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tiptoe_collector::Observer;
use tiptoe_report::Options;
use tiptoe_session::{Interval, Session};

use crate::output::{self, Output};

/// Where interval lines go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    /// Nowhere: JSON holds them in its one document.
    Kept,
    Stdout,
    Stderr,
}

/// Prints lines while the trace runs, and keeps the intervals for the report.
pub struct Terminal {
    lines: Lines,
    options: Options,
    /// Set to end the trace when nobody reads the lines any more.
    stop: Arc<AtomicBool>,
    intervals: Vec<Interval>,
}

impl Terminal {
    /// For a report that goes to `output`. Lines never go into its file.
    pub fn new(output: &Output, json: bool, stop: Arc<AtomicBool>) -> Terminal {
        let (lines, terminal) = match output {
            _ if json => (Lines::Kept, false),
            Output::Stdout => (Lines::Stdout, io::stdout().is_terminal()),
            _ => (Lines::Stderr, io::stderr().is_terminal()),
        };
        let options = output::terminal_options(None, terminal);
        Terminal {
            lines,
            options,
            stop,
            intervals: Vec::new(),
        }
    }

    /// What was counted in each interval.
    pub fn into_intervals(self) -> Vec<Interval> {
        self.intervals
    }
}

impl Observer for Terminal {
    fn interval(&mut self, deltas: &Session) {
        let before = self.intervals.last().map_or(0, |interval| interval.at_ns);
        let interval = deltas.as_interval(before.saturating_add(deltas.duration_ns));
        let line = tiptoe_report::interval(&interval, &self.options) + "\n";
        self.intervals.push(interval);
        let written = match self.lines {
            Lines::Kept => Ok(()),
            Lines::Stdout => io::stdout().write_all(line.as_bytes()),
            Lines::Stderr => io::stderr().write_all(line.as_bytes()),
        };
        if written.is_err() {
            // Relaxed: the flag is the whole message, nothing is published with it.
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn note(&mut self, note: &str) {
        output::to_stderr(&format!("note: {note}\n"));
    }
}
