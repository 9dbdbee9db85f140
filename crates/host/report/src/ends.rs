//! Notes on calls: which ones the numbers leave out, and how calls ended that did not return.

use tiptoe_session::{Ends, Event, Session};

use crate::columns::joined;
use crate::event_name;
use crate::number::{counted, short_percent, time};

/// Returns the notes, one sentence each.
pub(crate) fn notes(session: &Session) -> Vec<String> {
    restrictions(session)
        .chain(without_return(session))
        .collect()
}

/// Returns a note for each option that restricts which calls count (`--under`, `--slower`).
fn restrictions(session: &Session) -> impl Iterator<Item = String> {
    let under = session.under.as_ref();
    let under = under.map(|function| format!("only calls below {function} were counted"));
    let slower = session.slower_ns.map(|ns| {
        let ns = time(ns as f64);
        format!("only calls that took longer than {ns} are in the times and the histograms")
    });
    under.into_iter().chain(slower)
}

/// An event whose calls were followed to their return, and how they ended.
type Followed<'a> = (&'a Event, Ends);

/// Returns a note for each way in which calls ended without an observed return.
fn without_return(session: &Session) -> impl Iterator<Item = String> {
    let events = session.events.iter();
    let followed: Vec<Followed> = events
        .filter_map(|event| Some((event, event.ends?)))
        .collect();
    let not_followed = format!(
        "not followed to their return: {}",
        why_not_followed(session.budget)
    );
    let left = "left without a return: by longjmp, an exception, or the end of their thread";
    let sentences = [
        sentence(&followed, |ends| ends.only_counted, &not_followed),
        sentence(&followed, |ends| ends.left, left),
        sentence(
            &followed,
            |ends| ends.inside,
            "still running when the trace ended",
        ),
    ];
    sentences.into_iter().flatten()
}

/// Returns all possible reasons, because calls are not counted by reason.
fn why_not_followed(budget: Option<f64>) -> String {
    let calls =
        "they were nested too deeply, or called from too many places or from generated code";
    match budget.map(short_percent) {
        Some(budget) => format!("the budget of {budget}% was spent, or {calls}"),
        None => calls.to_owned(),
    }
}

/// Returns `3 calls of EVENT were WHAT`; `None` without such calls.
fn sentence(followed: &[Followed], number: fn(&Ends) -> u64, what: &str) -> Option<String> {
    let (most, ends) = followed.iter().max_by_key(|(_, ends)| number(ends))?;
    let sum = followed
        .iter()
        .fold(0_u64, |sum, (_, ends)| sum.saturating_add(number(ends)));
    let event = joined(&event_name(&most.event));
    let whose = match number(ends) == sum {
        true => format!("of {event}"),
        false => format!("(most of {event})"),
    };
    let verb = if sum == 1 { "was" } else { "were" };
    (sum > 0).then(|| format!("{} {whose} {verb} {what}", counted(sum as usize, "call")))
}
