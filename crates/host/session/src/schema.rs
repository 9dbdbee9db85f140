//! Makes the JSON Schema of what `--json` prints. Only test builds have this module, so that tiptoe does not link
//! schemars.

use schemars::JsonSchema;

use crate::{Access, Call, Counts, Interval, ScopeCounts, Session};

#[path = "../../../../tests/support/published.rs"]
mod published;

/// One line of `--json`. The last line is the session; options request the other kinds of lines.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Line<'a> {
    Session(Box<Session>),
    Interval(Interval),
    Call(Call<'a>),
    Access(Access<'a>),
    Counts(Counts),
    ScopeCounts(ScopeCounts),
}

/// What counts the events.
#[derive(JsonSchema)]
#[schemars(rename = "Via", rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum ViaWord {
    /// tiptoe's code in the program.
    Agent,
    /// The kernel.
    Kernel,
}

#[test]
#[cfg_attr(miri, ignore = "reads a file")]
fn the_schema_of_the_book_is_of_todays_types() {
    published::check::<Line>("session", "--json");
}
