//! Makes cgroups (version 2) for tests.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{keeper, turn};

/// A cgroup. Only one may exist at a time, because some tests count all cgroups.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    _alone: File,
}

impl Cgroup {
    /// Makes a cgroup.
    pub fn new() -> Result<Cgroup, String> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let root = keeper::cgroup_root().ok_or("no cgroups of version 2")?;
        // Relaxed: only the numbers must differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // If this process is killed, the keeper (the process above it) removes cgroups with this name.
        let name = std::env::var(keeper::KEPT).expect("each test program has a keeper");
        let path = root.join(format!("{name}-{number}"));
        let alone = turn::wait(&root);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Cgroup {
            path,
            _alone: alone,
        })
    }

    /// Returns the cgroup's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder's name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().expect("it has a name");
        name.to_string_lossy().into_owned()
    }

    /// Makes a cgroup within this one.
    pub fn make(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        fs::create_dir(&path).expect("a cgroup");
        path
    }

    /// Moves a process into a cgroup.
    pub fn put(cgroup: &Path, pid: u32) {
        fs::write(cgroup.join("cgroup.procs"), pid.to_string()).expect("a move");
    }

    /// Returns a cgroup's CPU time.
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
    /// Kills all processes in the cgroup.
    pub fn kill(&self) {
        // The file is missing before Linux 5.14.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        keeper::end_cgroup(&self.path);
    }
}
