//! Cgroups of version 2 that a test makes, and what the kernel itself says of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{keeper, turn};

/// A cgroup, with whatever was made in it. There is one at a time: whoever counts all cgroups sees those of others.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    _alone: File,
}

impl Cgroup {
    /// A new one below the root; none where that is not possible, with the reason.
    pub fn new() -> Result<Cgroup, String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let root = keeper::cgroup_root().ok_or("no cgroups of version 2")?;
        // Relaxed: numbers that differ are all that is wanted.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The keeper removes cgroups of this name if this process cannot.
        let name = std::env::var(keeper::KEPT).expect("each test program has a keeper");
        let path = root.join(format!("{name}-{number}"));
        let alone = turn::wait(&root);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Cgroup {
            path,
            _alone: alone,
        })
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, as tiptoe knows it.
    pub fn name(&self) -> String {
        let name = self.path.file_name().expect("it has a name");
        name.to_string_lossy().into_owned()
    }

    /// One within it.
    pub fn make(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir(&path).expect("a cgroup");
        path
    }

    /// Moves a process.
    pub fn put(cgroup: &Path, pid: u32) {
        fs::write(cgroup.join("cgroup.procs"), pid.to_string()).expect("a move");
    }

    /// The CPU time of a cgroup, as the kernel counts it.
    pub fn usage_ns(cgroup: &Path) -> f64 {
        let text = fs::read_to_string(cgroup.join("cpu.stat")).expect("cpu.stat");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        let micros: f64 = line.expect(&text).parse().expect("a number");
        micros * 1000.0
    }
}

impl Cgroup {
    /// Ends all that is in it.
    pub fn kill(&self) {
        // Before Linux 5.14 there is no such file.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        keeper::end_cgroup(&self.path);
    }
}
