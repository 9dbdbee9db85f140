//! Control groups.

use std::prelude::rust_2024::*;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::{Error, Result, read_text};
use super::procfs::Mount;

/// Where cgroups are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// The unified hierarchy (version 2).
    pub v2: Option<PathBuf>,
    /// The hierarchies of version 1.
    pub v1: Vec<PathBuf>,
    /// Version 1's `perf_event` hierarchy. If it is mounted, perf events use it.
    pub v1_perf_event: Option<PathBuf>,
}

impl Cgroups {
    /// Reads this process's mounts.
    pub fn detect() -> Result<Self> {
        Ok(Self::parse(&read_text("/proc/self/mountinfo")?))
    }

    fn parse(mountinfo: &str) -> Self {
        let mut found = Self::default();
        let mut is_whole = false;
        for line in mountinfo.lines() {
            let Some(mount) = Mount::parse(line) else {
                continue;
            };
            match mount.kind {
                // Prefers a mount of the whole hierarchy to a mount of a part.
                "cgroup2" if found.v2.is_none() || !is_whole => {
                    found.v2 = Some(unescape(mount.point));
                    is_whole = mount.root == "/";
                }
                "cgroup" => {
                    if mount.options.split(',').any(|o| o == "perf_event") {
                        found.v1_perf_event = Some(unescape(mount.point));
                    }
                    found.v1.push(unescape(mount.point));
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the mount point of the hierarchy that perf events use.
    pub fn for_perf(&self) -> Option<&Path> {
        self.v1_perf_event.as_deref().or(self.v2.as_deref())
    }

    /// Returns a description: `v2 at /sys/fs/cgroup`.
    pub fn describe(&self) -> String {
        match (&self.v2, self.v1.len()) {
            (None, 0) => "not mounted".into(),
            (None, n) => format!("v1 only ({n} hierarchies)"),
            (Some(v2), 0) => format!("v2 at {}", v2.display()),
            (Some(v2), n) => format!("v2 at {} (and {n} v1)", v2.display()),
        }
    }
}

/// Returns the version 2 cgroups at and below this mount point, parents first. A cgroup's id is its directory's inode.
pub fn walk(root: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
    let mut open = vec![root.to_path_buf()];
    std::iter::from_fn(move || {
        loop {
            let dir = open.pop()?;
            open.extend(fs::read_dir(&dir).into_iter().flat_map(folders));
            if let Ok(metadata) = fs::metadata(&dir) {
                let path = dir.strip_prefix(root).unwrap_or(&dir);
                return Some((metadata.ino(), Path::new("/").join(path)));
            }
        }
    })
}

/// Returns the paths of the cgroups with these ids, in [`walk`]'s form; omits removed cgroups.
pub fn paths_of(root: &Path, ids: &[u64]) -> BTreeMap<u64, PathBuf> {
    let wanted = walk(root).filter(|(id, _)| ids.contains(id));
    wanted.take(ids.len()).collect()
}

/// A cgroup's usage, with its descendants'.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CgroupUsage {
    /// The CPU time.
    pub cpu_ns: Option<u64>,
    /// Page faults, if memory is accounted.
    pub faults: Option<u64>,
    /// Faults that read from a device.
    pub major_faults: Option<u64>,
}

/// Reads a cgroup's usage.
pub fn used(dir: &Path) -> CgroupUsage {
    let number = |file: &str, name: &str| {
        let text = fs::read_to_string(dir.join(file)).ok()?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let (_, number) = lines.find(|(found, _)| *found == name)?;
        number.trim().parse::<u64>().ok()
    };
    CgroupUsage {
        cpu_ns: number("cpu.stat", "usage_usec").map(|micros| micros * 1000),
        faults: number("memory.stat", "pgfault"),
        major_faults: number("memory.stat", "pgmajfault"),
    }
}

/// Returns the processes at and below a cgroup, ascending.
pub fn processes(dir: &Path) -> Result<Vec<u32>> {
    let mut pids = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        collect(&dir, &mut pids, &mut open).map_err(|e| Error::of_file(&dir, e))?;
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn collect(dir: &Path, pids: &mut Vec<u32>, open: &mut Vec<PathBuf>) -> io::Result<()> {
    let text = fs::read_to_string(dir.join("cgroup.procs"))?;
    // 0 is a process outside our pid namespace.
    let all = text.lines().filter_map(|line| line.parse::<u32>().ok());
    pids.extend(all.filter(|pid| *pid != 0));
    open.extend(folders(fs::read_dir(dir)?));
    Ok(())
}

fn folders(entries: fs::ReadDir) -> impl Iterator<Item = PathBuf> {
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|t| t.is_dir());
    entries
        .flatten()
        .filter(is_folder)
        .map(|entry| entry.path())
}

fn unescape(text: &str) -> PathBuf {
    let plain = [
        (r"\040", " "),
        (r"\011", "\t"),
        (r"\012", "\n"),
        (r"\134", r"\"),
    ];
    let text = plain
        .iter()
        .fold(text.to_string(), |t, (from, to)| t.replace(from, to));
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = Cgroups::parse(unified);
        assert_eq!(found.describe(), "v2 at /sys/fs/cgroup");
        assert_eq!(found.for_perf(), Some(Path::new("/sys/fs/cgroup")));

        let parts = format!(
            "29 23 0:26 /a /mnt rw - cgroup2 cgroup2 rw\n{unified}28 23 0:26 /b /b rw - cgroup2 x rw"
        );
        assert_eq!(Cgroups::parse(&parts).describe(), "v2 at /sys/fs/cgroup");

        let old = "31 30 0:27 / /sys/fs/cgroup/a\\040b rw - cgroup cgroup rw,perf_event\n";
        let found = Cgroups::parse(&format!("{unified}{old}"));
        assert_eq!(found.for_perf(), Some(Path::new("/sys/fs/cgroup/a b")));
        assert_eq!(Cgroups::parse("x\n").describe(), "not mounted");
    }

    #[test]
    fn a_cgroup_is_named_by_the_inode_of_its_directory() {
        let root = std::env::temp_dir().join(std::format!("tiptoe-cgroups-{}", std::process::id()));
        let inner = root.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let ids = [&root, &inner].map(|dir| fs::metadata(dir).unwrap().ino());
        let found = paths_of(&root, &[ids[0], ids[1], 1]);
        fs::remove_dir_all(&root).unwrap();
        let expected = [(ids[0], "/".into()), (ids[1], "/a/b".into())];
        assert_eq!(found, BTreeMap::from(expected));
    }

    #[test]
    fn usage_is_read_from_files() {
        let dir = std::env::temp_dir().join(std::format!("tiptoe-used-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(used(&dir), CgroupUsage::default());
        fs::write(dir.join("cpu.stat"), "usage_usec 12\nuser_usec 7\n").unwrap();
        fs::write(
            dir.join("memory.stat"),
            "anon 1\npgfault 30\npgmajfault 4\n",
        )
        .unwrap();
        let expected = CgroupUsage {
            cpu_ns: Some(12_000),
            faults: Some(30),
            major_faults: Some(4),
        };
        assert_eq!(used(&dir), expected);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn own_cgroup_holds_this_process() {
        let Some(root) = Cgroups::detect().unwrap().v2 else {
            return crate::skipped::skipped("cgroup v2", "it is not mounted");
        };
        let text = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = text.lines().find_map(|l| l.strip_prefix("0::/")).unwrap();
        let Ok(pids) = processes(&root.join(own)) else {
            return crate::skipped::skipped("the own cgroup", "it is not visible from here");
        };
        assert!(pids.contains(&std::process::id()));
    }
}
