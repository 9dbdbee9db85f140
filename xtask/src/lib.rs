//! Checks the rules on crates, sources and pages, and runs all tests ([`tests`]). Each check returns a list of faults,
//! which must be empty.

pub mod architecture;
pub mod bench_passes;
pub mod bench_tables;
pub mod crate_modules;
pub mod dependencies;
pub mod examples;
pub mod headings;
pub mod keep;
pub mod layers;
pub mod metadata;
pub mod pages;
pub mod pairs;
pub mod pictures;
pub mod rooms;
pub mod sbom;
pub mod schema;
pub mod sessions;
pub mod shared_object;
pub mod sources;
pub mod steps;
pub mod tests;
pub mod words;

use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is in the workspace")
        .to_path_buf()
}

/// Reads a file, named from the root.
pub fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
