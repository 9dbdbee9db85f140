//! The serialized form of each kind of note, which programs read, and its line, which people read.

use std::collections::BTreeSet;

use tiptoe_report::LiveNotes;
use tiptoe_session::Note;

/// Pairs of lines: a note as JSON, and its line.
const NOTES: &str = include_str!("sessions/notes.txt");
/// The number of kinds.
const KINDS: usize = 69;

#[test]
fn each_kind_has_its_keys_its_severity_and_its_sentence() {
    let lines: Vec<&str> = NOTES.lines().collect();
    let mut kinds = BTreeSet::new();
    for pair in lines.chunks(2) {
        let note: Note = serde_json::from_str(pair[0]).expect(pair[0]);
        let json = serde_json::to_value(&note).expect("JSON");
        kinds.insert(format!("{}: {}", json["area"], json["note"]["kind"]));
        assert_eq!(serde_json::to_string(&note).expect("JSON"), pair[0]);
        assert_eq!(LiveNotes::default().line(&note).as_deref(), Some(pair[1]));
    }
    assert_eq!(kinds.len(), KINDS, "{kinds:#?}");
}
