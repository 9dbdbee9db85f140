//! A run of `tiptoe stat`, with or without `--by scope`: its output, the printer of its intervals, and its report.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tiptoe_collector::{Observer, Outcome, Progress, Request, RequestTarget, RunOptions};
use tiptoe_report::{CSV_HEADING, IntervalTable, Options, SCOPES_CSV_HEADING};
use tiptoe_session::{Call, Count, Counts, Interval, Note, ScopeCounts};

use super::{Form, StatArgs, report};
use crate::failure::Failure;
use crate::instrument;
use crate::interrupt;
use crate::observer::LiveLines;
use crate::output::{NotesTo, Output};
use crate::ready::ReadyLine;
use crate::status::{self, RunDescription};

pub(super) struct StatRun {
    pub(super) printer: Printer,
    output: Output,
    notes: NotesTo,
    comments_to: NotesTo,
}

impl StatRun {
    /// Opens the output, handles signals, and begins the status line, which names the target (`whom`) and what is
    /// counted (`noun`). The returned request has no events yet.
    pub(super) fn begin(
        args: &StatArgs,
        form: Form,
        target: &RequestTarget,
        whom: String,
        noun: &'static str,
    ) -> Result<(StatRun, Request<'static>), Failure> {
        let output = Output::chosen(args.output.as_deref(), target, false)?;
        let (notes, comments_to) = (output.notes_to(target), output.comments_to(target));
        let ready_line = match (&form, ReadyLine::for_output(&output, target, args.json)) {
            (Form::Fields(_) | Form::Csv, ReadyLine::Plain) => ReadyLine::Comment,
            (_, ready_line) => ready_line,
        };
        let description = RunDescription {
            whom,
            noun,
            delay: None,
            duration: args.duration,
            is_for_programs: form != Form::Text,
        };
        let interval = args.interval_ms.map(|ms| Duration::from_millis(ms.into()));
        let run_options = RunOptions {
            interval: interval.or(args.interval),
            ..instrument::begin(target, &output, description, args.ready_fd, ready_line)?
        };
        let printer = Printer {
            lines: LiveLines::new(&output, notes, Arc::clone(&run_options.stop))?,
            options: Options {
                all_notes: args.all_notes,
                ..output.options(args.top)
            },
            form,
            table: IntervalTable::default(),
            has_heading: false,
        };
        let run = StatRun {
            printer,
            output,
            notes,
            comments_to,
        };
        Ok((run, instrument::request(target.clone(), run_options)))
    }

    pub(super) fn finish(self, mut outcome: Outcome) -> ExitCode {
        outcome.session.notes.extend(interrupt::unsaid(self.notes));
        let Printer { form, options, .. } = self.printer;
        let (output, to) = (self.output, self.comments_to);
        let written = report::write(outcome.session, output, to, &form, &options);
        instrument::exit_code(outcome.exit_status, written)
    }
}

pub(super) struct Printer {
    lines: LiveLines,
    options: Options,
    form: Form,
    table: IntervalTable,
    has_heading: bool,
}

impl Printer {
    fn lines_of(&mut self, counts: &Counts) -> io::Result<String> {
        Ok(match &self.form {
            Form::Json => tiptoe_report::json_line(counts)?,
            Form::Fields(separator) => tiptoe_report::counts_fields(counts, separator),
            Form::Csv => self.csv(CSV_HEADING, tiptoe_report::counts_csv(counts)),
            Form::Text => self.table.lines(counts, &self.options),
        })
    }

    fn lines_of_scopes(&mut self, counts: &ScopeCounts) -> io::Result<String> {
        Ok(match self.form {
            Form::Json => tiptoe_report::json_line(counts)?,
            Form::Csv => self.csv(SCOPES_CSV_HEADING, tiptoe_report::scope_counts_csv(counts)),
            Form::Text | Form::Fields(_) => tiptoe_report::scope_counts(counts, &self.options),
        })
    }

    fn csv(&mut self, heading: &str, lines: String) -> String {
        match std::mem::replace(&mut self.has_heading, true) {
            true => lines,
            false => heading.to_owned() + &lines,
        }
    }
}

impl Observer for Printer {
    fn interval(&mut self, _interval: &Interval) {}

    fn calls(&mut self, _calls: &[Call<'_>]) {}

    fn counts(&mut self, counts: &Counts) {
        let lines = self.lines_of(counts);
        self.lines.write(lines);
    }

    fn scopes(&mut self, counts: &ScopeCounts) {
        let lines = self.lines_of_scopes(counts);
        self.lines.write(lines);
    }

    fn wants_progress(&mut self) -> bool {
        status::wants_progress()
    }

    fn progress(&mut self, progress: &Progress) {
        status::put(progress);
    }

    fn counts_so_far(&mut self, counts: &[Count]) {
        status::put_counts(counts);
    }

    fn note(&mut self, note: &Note) {
        self.lines.note(note);
    }
}
