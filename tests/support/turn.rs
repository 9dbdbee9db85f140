//! Locks for what a machine has only once, such as debug registers. The kernel's own folders are locked, so all
//! processes find the locks, and no file is left.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// A test may hold a lock this long.
const LIMIT: Duration = Duration::from_secs(130);

/// Waits for this folder's lock, which is held until the returned file is closed.
pub fn wait(folder: &Path) -> File {
    let file = File::open(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    lock(&file, folder);
    file
}

/// Waits for a file's lock. Creates the file.
pub fn wait_for_file(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).write(true).open(path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    lock(&file, path);
    file
}

fn lock(file: &File, path: &Path) {
    let until = Instant::now() + LIMIT;
    // SAFETY: flock takes a descriptor and touches no memory.
    while unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let error = io::Error::last_os_error();
        let is_late = Instant::now() > until;
        assert!(
            error.kind() == io::ErrorKind::WouldBlock && !is_late,
            "{} is held by another test: {error}",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
