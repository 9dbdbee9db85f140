//! The rules between the rooms, as code that the tests in `tests/` run; and the runner of all tests ([`tests`]).
//!
//! ARCHITECTURE.md's table is the one place where the rules are written; `cargo metadata` and the sources
//! are what is. Each function here answers with the list of differences, empty when all is well.

pub mod dependencies;
pub mod examples;
pub mod keep;
pub mod layers;
pub mod metadata;
pub mod pages;
pub mod pairs;
pub mod sbom;
pub mod shared_object;
pub mod sources;
pub mod tests;
pub mod words;

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the workspace")
        .to_path_buf()
}

/// Reads a file of the workspace, named from its root.
pub fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
