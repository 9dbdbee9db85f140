//! Writes the report of `tiptoe stat`. In a report for scripts, notes (limits of a result) and cost are comments,
//! after the fields or on stderr.

use tiptoe_report::Options;
use tiptoe_session::Session;

use super::Form;
use crate::failure::Failure;
use crate::output::{NotesTo, Output};
use crate::terminal;

/// Fields are left out if they were printed at intervals.
pub(super) fn write(
    session: Session,
    output: Output,
    comments_to: NotesTo,
    form: &Form,
    options: &Options,
) -> Result<(), Failure> {
    match form {
        Form::Text => output.write(&tiptoe_report::text(&session, options)),
        Form::Json => output.write(&tiptoe_report::json(session)?),
        Form::Fields(separator) => write_fields(&session, Some(separator), output, comments_to),
        Form::Csv => write_fields(&session, None, output, comments_to),
    }
}

/// Writes counts and comments. The counts are CSV if `separator` is `None`.
fn write_fields(
    session: &Session,
    separator: Option<&str>,
    output: Output,
    comments_to: NotesTo,
) -> Result<(), Failure> {
    let (stat, scopes) = (session.stat.as_ref(), session.scopes.as_ref());
    let intervals = stat.map_or_else(|| scopes?.intervals, |stat| stat.intervals);
    let mut text = match (stat, separator) {
        _ if intervals.is_some() => String::new(),
        (Some(stat), Some(separator)) => tiptoe_report::stat_fields(stat, separator),
        (Some(stat), None) => tiptoe_report::stat_csv(stat),
        (None, _) => tiptoe_report::scopes_csv(session),
    };
    let cost = match stat {
        Some(stat) => tiptoe_report::stat_cost(session, stat),
        None => tiptoe_report::cost_line(&session.cost),
    };
    let comments = comments(session, cost);
    if comments_to == NotesTo::Stderr {
        output.write(&text)?;
        comments.iter().for_each(terminal::say);
        return Ok(());
    }
    let plain = Options::default();
    let lines = comments
        .iter()
        .map(|line| tiptoe_report::message(line, &plain) + "\n");
    text.extend(lines);
    output.write(&text)
}

fn comments(session: &Session, cost: String) -> Vec<String> {
    let notes = tiptoe_report::note_sentences(session).into_iter();
    let notes = notes.map(|note| format!("# note: {note}"));
    notes.chain([format!("# {cost}")]).collect()
}
