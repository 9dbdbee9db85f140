//! The rules between the rooms: what ARCHITECTURE.md says is what is built.

#[path = "../../tests/support/skipped.rs"]
mod skipped;

use skipped::skipped;
use xtask::layers::{self, Row};
use xtask::metadata::{self, Package};
use xtask::{examples, pairs, read, shared_object, sources};

/// The crates whose types may be serialized: each such type is a contract.
const SERDE: &[&str] = &["session", "report", "bench", "cli"];

/// Files that may be longer than [`sources::MAX_LINES`], each with its reason.
const LONG_FILES: &[&str] = &[];

fn rows() -> Vec<Row> {
    layers::table(&read("ARCHITECTURE.md")).expect("ARCHITECTURE.md has its table")
}

fn none(faults: Vec<String>) {
    assert!(faults.is_empty(), "\n  {}", faults.join("\n  "));
}

#[test]
fn the_table_lists_exactly_the_crates_that_exist() {
    none(layers::missing(&rows(), &metadata::packages()));
}

#[test]
fn the_table_obeys_its_own_rules() {
    none(layers::wrong_rows(&rows()));
}

#[test]
fn crates_use_only_what_their_row_allows() {
    none(layers::wrong_edges(&rows(), &metadata::packages()));
}

#[test]
fn only_contracts_use_serde() {
    none(layers::wrong_serde(&rows(), &metadata::packages(), SERDE));
}

#[test]
fn crates_carry_the_attributes_of_their_row() {
    none(sources::missing_attributes(&rows()));
}

#[test]
fn files_are_short() {
    none(sources::too_long(LONG_FILES));
}

#[test]
fn the_agent_needs_nothing() {
    let Some(path) = shared_object::agent() else {
        return skipped(
            "the agent's shared object",
            "build the command first: `cargo build`",
        );
    };
    let faults = [
        ("needs", shared_object::needed(&path)),
        ("leaves undefined", shared_object::undefined(&path)),
        ("relocates its text", shared_object::text_relocations(&path)),
    ];
    none(
        faults
            .into_iter()
            .flat_map(|(what, found)| found.into_iter().map(move |name| format!("{what}: {name}")))
            .collect(),
    );
}

/// The hook of contended locks does not save them.
#[test]
fn hooks_of_locks_touch_no_vector_register() {
    let Some(path) = shared_object::agent() else {
        return skipped(
            "the agent's shared object",
            "build the command first: `cargo build`",
        );
    };
    let saves = ["tiptoe_first_slab"];
    none(shared_object::vector_instructions(
        &path,
        "tiptoe_futex_entry",
        &saves,
    ));
    assert!(!shared_object::vector_instructions(&path, saves[0], &[]).is_empty());
}

#[test]
fn what_programs_link_has_examples() {
    none(examples::missing("crates/engines/lock"));
}

/// What a lock costs that has no hook: nothing.
#[test]
fn a_lock_without_a_hook_is_the_bare_lock() {
    let bodies = pairs::bodies(&pairs::build());
    let (count, different) = pairs::differences(&bodies);
    assert_eq!(count, 12, "ways to take a lock");
    none(different);
}

/// The checker itself: a table of wrong edges, each with the rule that it breaks.
#[test]
fn wrong_edges_are_found() {
    let check = |from: &str, to: &str, why: &str| {
        let package = Package {
            name: format!("tiptoe-{from}"),
            folder: rows()
                .iter()
                .find(|row| row.name() == from)
                .expect("a crate")
                .folder
                .clone(),
            dependencies: vec![if to == "cli" {
                "tiptoe".into()
            } else {
                format!("tiptoe-{to}")
            }],
        };
        let found = layers::wrong_edges(&rows(), &[package]);
        assert!(
            found.len() == 1 && found[0].contains(why),
            "{from} -> {to}: {found:?}"
        );
    };
    check("report", "sys", "must print");
    check("report", "collector", "must print");
    check("bench", "agent", "nothing depends on it");
    check("bench", "cli", "nothing depends on it");
    check("wire", "uprobe", "not a smaller layer");
    check("patch", "sys", "not in its row");
}

#[test]
fn a_second_engine_may_not_use_the_first() {
    let page = "<!-- layers: read by xtask -->\n| a |\n|-|\n\
        | 1 | `engines/one` | x | none | yes | forbid |\n| 2 | `engines/two` | x | one | yes | forbid |\n";
    let faults = layers::wrong_rows(&layers::table(page).expect("a table"));
    assert_eq!(
        faults,
        ["engines/two: one: engines never depend on each other"]
    );
}
