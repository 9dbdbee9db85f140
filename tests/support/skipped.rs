//! Records what a test cannot do on this machine. It is printed, and written to a file that `make test` prints at its
//! end.
//!
//! Crates that do not depend on these helpers include this file by path.

use std::io::Write;
use std::path::{Path, PathBuf};

/// Records that the calling test cannot do `what` here, and why: a line in `TIPTOE_SKIPS`, or in
/// `target/test-skips`.
pub fn skipped(what: &str, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread");
    let line = std::format!("{test}: {what} ({why})").replace('\n', " ");
    std::println!("skipped: {line}");
    let path = std::env::var_os("TIPTOE_SKIPS").map_or_else(default_path, PathBuf::from);
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).append(true).open(&path);
    let mut file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // The line must be written at once, because tests run concurrently and their lines must not mix.
    let written = file.write_all((line + "\n").as_bytes());
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns the default file below the root of the workspace, which is the folder with the lock
/// file.
fn default_path() -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").exists());
    root.expect("a workspace").join("target/test-skips")
}
