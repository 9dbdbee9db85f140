//! Checks the serialized form of each kind of note, and the note's line in the report.

use std::collections::BTreeSet;

use tiptoe_report::LiveNotes;
use tiptoe_session::Note;

/// Pairs of lines: a note as JSON, and its line in the report.
const NOTES: &str = include_str!("sessions/notes.txt");

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
    assert_eq!(kinds.len(), Note::KIND_COUNT, "{kinds:#?}");
}
