//! Records what a test cannot do on this machine. Crates outside `tests` include this file.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Records that the test cannot do `what`, and why. `make test` prints the records at its end.
pub fn skipped(what: &str, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread");
    let line = std::format!("{test}: {what} ({why})").replace('\n', " ");
    std::println!("skipped: {line}");
    let path = std::env::var_os("TIPTOE_SKIPS").map_or_else(default_path, PathBuf::from);
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).open(&path);
    let mut file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // All is one write, because concurrent tests' lines must not mix.
    let written = file.write_all((line + "\n").as_bytes());
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn default_path() -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").exists());
    root.expect("a workspace").join("target/test-skips")
}
