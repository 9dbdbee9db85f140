//! The JSON Schema of what `tiptoe doctor --json` prints.

use schemars::JsonSchema;

use super::DoctorReport;

#[path = "../../../../../tests/support/published.rs"]
mod published;

/// What `tiptoe doctor --json` prints, on several lines.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Lines {
    Report(DoctorReport),
}

#[test]
fn the_schema_of_the_book_is_of_todays_types() {
    published::check::<Lines>("doctor", "doctor --json");
}
