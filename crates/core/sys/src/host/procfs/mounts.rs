//! Detects file systems that another user's program serves (FUSE). If that program does not answer, a thread that
//! reads content or attributes hangs, even after SIGKILL. So this module uses only what the kernel itself knows:
//! mounts and device numbers.

use std::prelude::rust_2024::*;

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use rustix::fs::{AtFlags, MemfdFlags, StatxFlags, memfd_create, statx};
use rustix::process::geteuid;

use super::Process;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::host) struct Mount<'t> {
    id: &'t str,
    device: &'t str,
    pub root: &'t str,
    pub point: &'t str,
    pub kind: &'t str,
    pub options: &'t str,
}

impl<'t> Mount<'t> {
    pub fn parse(line: &'t str) -> Option<Mount<'t>> {
        let (place, of) = line.split_once(" - ")?;
        let mut place = place.split(' ');
        let mut of = of.split(' ');
        Some(Mount {
            id: place.next()?,
            device: place.nth(1)?,
            root: place.next()?,
            point: place.next()?,
            kind: of.next()?,
            options: of.nth(1)?,
        })
    }

    fn is_foreign(&self, uid: u32) -> bool {
        let mut options = self.options.split(',');
        let user = options.find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
        let is_fuse = ["fuse", "fuseblk"].contains(&self.kind) || self.kind.starts_with("fuse.");
        is_fuse && user.is_none_or(|user: u32| user != 0 && user != uid)
    }
}

pub(super) fn is_foreign(held: &File, process: Process) -> bool {
    let uid = geteuid().as_raw();
    let tables = [process, Process::current()].map(|of| fs::read(of.path("mountinfo")));
    let tables = tables.map(|table| table.unwrap_or_default());
    let tables = tables
        .each_ref()
        .map(|table| String::from_utf8_lossy(table));
    let mounts: Vec<Mount<'_>> = tables
        .iter()
        .flat_map(|table| table.lines().filter_map(Mount::parse))
        .collect();
    let Some(place) = FileLocation::of(held) else {
        return true;
    };
    foreign(&place, &mounts, uid)
}

struct FileLocation {
    mount: String,
    device: (u32, u32),
}

impl FileLocation {
    fn of(held: &File) -> Option<FileLocation> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", held.as_raw_fd())).ok()?;
        let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(held, c"", flags, StatxFlags::TYPE).ok()?;
        Some(FileLocation {
            mount: mount.trim().to_owned(),
            device: (found.stx_dev_major, found.stx_dev_minor),
        })
    }
}

fn foreign(place: &FileLocation, mounts: &[Mount<'_>], uid: u32) -> bool {
    let (major, minor) = place.device;
    let device = format!("{major}:{minor}");
    if let Some(mount) = mounts.iter().find(|mount| mount.id == place.mount) {
        return mount.is_foreign(uid);
    }
    if let Some(mount) = mounts.iter().find(|mount| mount.device == device) {
        return mount.is_foreign(uid);
    }
    // A device of major 0 without a mount may be an unmounted FUSE. Memfds also have such a device, but are harmless.
    let is_memory = || memory_device().is_some_and(|of_memory| of_memory == place.device);
    major == 0 && !is_memory()
}

fn memory_device() -> Option<(u32, u32)> {
    let memory = memfd_create(c"tiptoe", MemfdFlags::CLOEXEC).ok()?;
    Some(FileLocation::of(&memory.into())?.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:50 / /mnt/own rw,nosuid - fuse.sshfs host: rw,user_id=1000,group_id=1000
41 22 0:51 / /mnt/a\\040b rw - fuse /dev/fuse rw,user_id=1001,group_id=0,allow_other
42 22 0:52 / /mnt/root rw - fuseblk /dev/vdb rw,user_id=0,group_id=0
";

    #[track_caller]
    fn check(mount: &str, device: (u32, u32), expected: bool) {
        let mounts: Vec<Mount<'_>> = TABLE.lines().filter_map(Mount::parse).collect();
        assert_eq!(mounts.len(), 4);
        let mount = mount.to_owned();
        assert_eq!(
            foreign(&FileLocation { mount, device }, &mounts, 1000),
            expected
        );
    }

    #[test]
    fn only_another_users_file_system_is_foreign() {
        check("22", (254, 0), false);
        check("40", (0, 50), false);
        check("41", (0, 51), true);
        check("42", (0, 52), false);
    }

    #[test]
    fn a_mount_elsewhere_is_found_by_its_device() {
        check("99", (254, 0), false);
        check("99", (0, 51), true);
        check("99", (8, 1), false);
        // A file system unmounted while in use.
        check("99", (0, 77), true);
        check("99", memory_device().expect("memory with a name"), false);
    }
}
