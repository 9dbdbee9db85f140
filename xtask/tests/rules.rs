//! The build must be as ARCHITECTURE.md says.

#[path = "../../tests/support/skipped.rs"]
mod skipped;

use skipped::skipped;
use xtask::dependencies::Dependencies;
use xtask::layers::{self, CrateLayer};
use xtask::metadata::{self, Package};
use xtask::{
    architecture, bench_tables, examples, headings, pages, pairs, read, rooms, sbom, schema,
    shared_object, sources, words,
};

/// The crates that may use serde. There are few, because users rely on each serializable type.
const SERDE: &[&str] = &["session", "report", "dev", "cli"];

/// How many more instructions a mutex may execute with the hook `Waits` than without: a prefetch, a copy of the
/// address, a jump, and four of `try_lock` that load and test the state.
const MOST_OF_WAITS: usize = 7;
/// The same limit for `bump`, which releases and retakes the lock if there is a hook.
const MOST_OF_A_BUMP: usize = 17;

const LONG_FILES: &[&str] = &[];

const WRITE_TO_STDERR: &[&str] = &[
    "crates/apps/cli/src/terminal.rs",
    // No package contains `tiptoe-dev`, so users never see its messages.
    "crates/apps/dev/src/failure.rs",
    // This file only compares the descriptor's number.
    "crates/core/sys/src/host/inherited_descriptors.rs",
    // This file reports that memory is used up, when `terminal::say` could not allocate.
    "crates/core/sys/src/host/memory.rs",
    // This file's code runs in programs that link it, without `terminal`.
    "crates/engines/lock/src/order/report.rs",
];

const OPEN_A_TARGETS_FILES: &[&str] = &[
    // This file opens only regular files.
    "crates/core/sys/src/host/procfs/files.rs",
    // The path is only in a test.
    "crates/core/sys/src/host/procfs/mounts.rs",
    // This file uses only the root's device and inode.
    "crates/core/sys/src/rights.rs",
];

const ROOMS: &[&str] = &[];

fn rows() -> Vec<CrateLayer> {
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
fn the_rooms_of_crates_are_in_order() {
    let rows = rows();
    none(rooms::faults(
        rows.iter().map(|row| row.folder.as_str()),
        ROOMS,
    ));
}

#[test]
fn files_are_short() {
    none(sources::too_long(LONG_FILES));
}

#[test]
fn the_readme_is_short() {
    none(pages::too_long());
}

#[test]
fn the_architecture_is_short_and_names_what_exists() {
    none(architecture::faults());
}

#[test]
fn links_of_pages_lead_to_files() {
    none(pages::broken_links());
}

#[test]
fn links_of_pages_lead_to_headings() {
    none(headings::broken(&pages::all()));
}

#[test]
fn the_book_lists_its_pages() {
    none(headings::unlisted());
}

#[test]
fn the_page_of_json_keys_is_of_the_schema() {
    none(schema::stale());
}

#[test]
fn words_are_plain() {
    none(words::too_much_dialect());
}

#[test]
fn only_one_module_writes_to_stderr() {
    none(sources::lines_with(
        &sources::WAYS_TO_STDERR,
        WRITE_TO_STDERR,
    ));
}

/// Only the report puts notes (statements on its limits) into words. No `match` on a note's kind may have `_`, so
/// that a new kind must choose its severity.
#[test]
fn notes_have_kinds() {
    let mut faults = sources::lines_with(&sources::SENTENCES_FOR_NOTES, &[]);
    // Notes of a bench's table are in no report.
    faults.retain(|line| !line.starts_with("crates/apps/dev/"));
    let kinds = "crates/host/session/src/note.rs";
    let arms = sources::lines_with(&["_ =>"], &[]);
    let of_kinds = |line: &&String| line.starts_with(kinds);
    faults.extend(arms.iter().filter(of_kinds).cloned());
    none(faults);
}

/// Only `Process::open_mapped` and `Process::open_in_root` open a target's files.
#[test]
fn files_of_a_target_are_opened_in_one_place() {
    none(sources::lines_with(
        &sources::WAYS_TO_A_TARGETS_FILES,
        OPEN_A_TARGETS_FILES,
    ));
}

#[test]
fn the_agent_needs_no_library_and_no_symbol() {
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

/// The hook of contended locks must use no vector registers, because the hook does not save them.
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

#[test]
#[ignore = "nightly: builds with optimisations"]
fn a_lock_without_a_hook_is_the_bare_lock() {
    let bodies = pairs::bodies(&pairs::build());
    let (count, different) = pairs::differences(&bodies);
    assert_eq!(count, 12, "ways to take a lock");
    none(different);
}

#[test]
#[ignore = "nightly: builds with optimisations"]
fn a_free_lock_with_a_hook_of_waits_is_nearly_the_bare_lock() {
    let executed = pairs::executed(&pairs::build());
    assert_eq!(executed.len(), 12, "ways to take a lock");
    let more = executed.iter().filter(|(name, [bare, waits])| {
        let most = match name.as_str() {
            "bump" => MOST_OF_A_BUMP,
            _ => MOST_OF_WAITS,
        };
        *waits > bare + most
    });
    let more =
        more.map(|(name, [bare, waits])| format!("{name}: {bare} bare, {waits} with `Waits`"));
    none(more.collect());
}

#[test]
fn the_bill_of_materials_is_whole() {
    let document = sbom::document(&Dependencies::resolve());
    assert_eq!(document["metadata"]["component"]["name"], "tiptoe");
    let components = document["components"].as_array().expect("a list");
    let named = |name: &str| {
        components
            .iter()
            .find(|component| component["name"] == name)
    };
    for (name, scope) in [
        ("tiptoe-agent", "required"),
        ("libc", "required"),
        ("syn", "excluded"),
    ] {
        assert_eq!(
            named(name).map(|component| &component["scope"]),
            Some(&scope.into()),
            "{name}"
        );
    }
    assert!(
        named("proptest").is_none(),
        "dependencies of tests must be left out"
    );
    for component in components.iter().filter(|one| {
        !one["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("tiptoe"))
    }) {
        let hash = component["hashes"][0]["content"].as_str();
        assert_eq!(hash.map(str::len), Some(64), "{component:#}");
        assert_ne!(component["licenses"][0]["expression"], "", "{component:#}");
    }
    let known = |reference: &serde_json::Value| {
        reference == "pkg:cargo/tiptoe@0.1.0"
            || components.iter().any(|one| one["bom-ref"] == *reference)
    };
    for edge in document["dependencies"].as_array().expect("a list") {
        let used = edge["dependsOn"].as_array().expect("a list");
        assert!(known(&edge["ref"]) && used.iter().all(known), "{edge:#}");
    }
}

/// SECURITY.md must list exactly the current versions, because a new version has not been reviewed.
#[test]
fn dependencies_with_unsafe_code_are_listed() {
    let page = read("SECURITY.md");
    let (_, table) = page
        .split_once("## Dependencies with unsafe code")
        .expect("the section");
    let rows = table
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let mut listed: Vec<String> = rows
        .filter_map(|line| Some(line.split('|').nth(1)?.trim().to_owned()))
        .collect();
    listed.sort();
    let dependencies = Dependencies::resolve();
    let packages = dependencies.packages().into_iter();
    let packages =
        packages.filter(|package| package.is_runtime && !package.is_own() && package.has_unsafe());
    let mut built: Vec<String> = packages
        .map(|package| format!("{} {}", package.name(), package.version()))
        .collect();
    built.sort();
    assert_eq!(
        listed, built,
        "SECURITY.md must list the packages that are built"
    );
}

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
    check("dev", "agent", "nothing depends on it");
    check("dev", "cli", "nothing depends on it");
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

#[test]
fn tables_of_costs_have_the_recorded_numbers() {
    let page = bench_tables::page().expect("each table is in a recorded run");
    assert!(
        page == read(bench_tables::PAGE),
        "run `cargo run -p xtask -- costs`"
    );
}
