//! Writes the report of `tiptoe stat`. In a report for scripts, notes and cost are comments, which come after the
//! fields or go to stderr.

use tiptoe_report::Options;
use tiptoe_session::Session;

use super::Form;
use crate::failure::Failure;
use crate::output::{NotesTo, Output};
use crate::terminal;

/// Writes the report of `tiptoe stat`.
pub(super) fn write(
    session: Session,
    output: Output,
    comments_to: NotesTo,
    form: &Form,
    options: &Options,
) -> Result<(), Failure> {
    let Some(stat) = &session.stat else {
        return Ok(());
    };
    let text = match form {
        Form::Text => tiptoe_report::text(&session, options),
        Form::Json => return output.write(&json(session)?),
        Form::Fields(separator) if stat.intervals.is_none() => {
            tiptoe_report::stat_fields(stat, separator)
        }
        Form::Csv if stat.intervals.is_none() => tiptoe_report::stat_csv(stat),
        Form::Fields(_) | Form::Csv => String::new(),
    };
    let comments = match form {
        Form::Fields(_) | Form::Csv => comments(&session, tiptoe_report::stat_cost(&session, stat)),
        Form::Text | Form::Json => Vec::new(),
    };
    write_with(output, text, &comments, comments_to)
}

/// Returns the session as JSON.
pub(super) fn json(session: Session) -> Result<String, Failure> {
    let failed = |error| Failure::new(format!("the session has no JSON form: {error}"));
    tiptoe_report::json(session).map_err(failed)
}

/// Writes a report and its comments. The comments go to stderr or after the report.
pub(super) fn write_with(
    output: Output,
    mut text: String,
    comments: &[String],
    comments_to: NotesTo,
) -> Result<(), Failure> {
    if comments_to == NotesTo::Stderr {
        output.write(&text)?;
        comments.iter().for_each(|comment| terminal::say(comment));
        return Ok(());
    }
    let plain = Options::default();
    let lines = comments
        .iter()
        .map(|line| tiptoe_report::message(line, &plain) + "\n");
    text.extend(lines);
    output.write(&text)
}

/// Returns the comments of a report for scripts: the notes, and the cost.
pub(super) fn comments(session: &Session, cost: String) -> Vec<String> {
    let notes = tiptoe_report::note_sentences(session).into_iter();
    let notes = notes.map(|note| format!("# note: {note}"));
    notes.chain([format!("# {cost}")]).collect()
}
