//! What a test cannot do on this machine: said aloud, and in a file, which `make test` ends with.
//!
//! Crates that these tests are no dependency of include this file by its path.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Says that the calling test cannot do `what` here, and why: a line in `TIPTOE_SKIPS`, else in `target/test-skips`.
pub fn skipped(what: &str, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread");
    let line = std::format!("{test}: {what} ({why})").replace('\n', " ");
    std::println!("skipped: {line}");
    let path = std::env::var_os("TIPTOE_SKIPS").map_or_else(default_path, PathBuf::from);
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).open(&path);
    let mut file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // One write, so that lines of tests that run side by side stay whole.
    let written = file.write_all((line + "\n").as_bytes());
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Below the root of the workspace, where its lock file is.
fn default_path() -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").exists());
    root.expect("a workspace").join("target/test-skips")
}
