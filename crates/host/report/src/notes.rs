//! The notes of a report (sentences on limits of its results), warnings first.

use tiptoe_session::{Note, Session, Severity};

use crate::number::grouped;
use crate::{Options, printable};

mod derived;
mod sentences;
mod signals;

pub(crate) use sentences::sentence;

const SHOWN: usize = 3;

/// The first note of each kind in a running trace, and the number of notes like it.
#[derive(Debug, Default)]
pub struct LiveNotes(Vec<(Note, usize)>);

impl LiveNotes {
    /// Returns the line for a note. After [`SHOWN`] notes of a kind, the next line only announces more notes. Returns
    /// `None` for later notes.
    pub fn line(&mut self, note: &Note) -> Option<String> {
        let all = &mut self.0;
        let at = all.iter().position(|(known, _)| known.is_like(note));
        let at = at.unwrap_or_else(|| {
            all.push((note.clone(), 0));
            all.len() - 1
        });
        let count = &mut all[at].1;
        *count += 1;
        let label = label(note.severity());
        match *count {
            ..=SHOWN => Some(label.to_owned() + &sentence(note)),
            count if count == SHOWN + 1 => Some(format!(
                "{label}… more like these are not printed one by one"
            )),
            _ => None,
        }
    }
}

struct NoteLine<'a> {
    severity: Severity,
    text: String,
    /// `None` if the note follows from the session's numbers, or is an old session's text. Such notes are never
    /// grouped.
    note: Option<&'a Note>,
    /// How many equal notes this line is for. Processes that run the same stripped file have equal notes.
    times: usize,
}

impl<'a> NoteLine<'a> {
    fn new(severity: Severity, text: String) -> NoteLine<'a> {
        NoteLine {
            severity,
            text,
            note: None,
            times: 1,
        }
    }

    fn of(note: &'a Note) -> NoteLine<'a> {
        NoteLine {
            note: Some(note),
            ..NoteLine::new(note.severity(), sentence(note))
        }
    }

    fn is_like(&self, other: &NoteLine<'_>) -> bool {
        matches!((self.note, other.note), (Some(one), Some(other)) if one.is_like(other))
    }
}

/// Returns a session's notes as sentences.
pub fn note_sentences(session: &Session) -> Vec<String> {
    in_words(&session.notes, &session.sentences)
}

/// An old session has only `sentences`.
pub(crate) fn in_words(notes: &[Note], sentences: &[String]) -> Vec<String> {
    match notes {
        [] => sentences.iter().map(|text| printable(text)).collect(),
        notes => notes.iter().map(sentence).collect(),
    }
}

pub(crate) fn lines(session: &Session, options: &Options) -> Vec<String> {
    let mut all = derived::notes(session, options);
    match &session.notes[..] {
        [] => {
            let old = note_sentences(session).into_iter();
            all.extend(old.map(|text| NoteLine::new(Severity::Plain, text)));
        }
        notes => all.extend(notes.iter().map(NoteLine::of)),
    }
    // The sort must be stable, so that notes of one severity keep their order.
    all.sort_by_key(|line| line.severity);
    let lines = by_kind(all).into_iter().flat_map(|notes| {
        let label = label(notes[0].severity);
        let shown = match notes.len() {
            len if options.all_notes || len == SHOWN + 1 => len,
            len => len.min(SHOWN),
        };
        let more = (notes.len() > shown).then(|| {
            let more = grouped((notes.len() - shown) as u64);
            format!("{label}… and {more} more like these: `-v` prints them")
        });
        let printed = notes[..shown]
            .iter()
            .map(|note| format!("{label}{}{}", note.text, repeated(note.times)));
        printed.chain(more).collect::<Vec<_>>()
    });
    lines.flat_map(|line| options.sentence(&line)).collect()
}

fn label(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => "warning: ",
        Severity::Plain => "note: ",
    }
}

fn repeated(times: usize) -> String {
    match times {
        1 => String::new(),
        times => format!(" ({} times)", grouped(times as u64)),
    }
}

/// Groups the notes by kind, in the order of their first notes, and joins equal notes.
fn by_kind(lines: Vec<NoteLine<'_>>) -> Vec<Vec<NoteLine<'_>>> {
    let mut kinds: Vec<Vec<NoteLine<'_>>> = Vec::new();
    for line in lines {
        match kinds.iter_mut().find(|kind| kind[0].is_like(&line)) {
            Some(kind) => match kind.iter_mut().find(|known| known.note == line.note) {
                Some(known) => known.times += 1,
                None => kind.push(line),
            },
            None => kinds.push(vec![line]),
        }
    }
    kinds
}

#[cfg(test)]
mod tests;
