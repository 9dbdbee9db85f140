//! Opens a target's files.
//!
//! 1. A mapped file, even if replaced or unlinked, is opened through `/proc/PID/map_files`.
//! 2. map_files needs `CAP_SYS_ADMIN` or `CAP_CHECKPOINT_RESTORE`. Without these rights the file's path is opened
//!    inside the target's root, and the inode is compared.
//! 3. A process that has ended has no root. Its files are opened inside tiptoe's root.
//!
//! The target chose these files, so they are hostile. A file is first held by an `O_PATH` descriptor. It is opened only
//! if it is regular, and no other user's program, which may never answer, serves its file system.

use std::prelude::rust_2024::*;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::mounts::is_foreign;
use super::{Mapping, Process};
use crate::host::capabilities::in_first_pid_namespace;
use crate::host::error::{Error, Result};

impl Process {
    /// Returns the program's path as the process sees it, without ` (deleted)`.
    pub fn exe(self) -> Result<PathBuf> {
        let path = self
            .through_living(|thread| fs::read_link(thread.path("exe")))
            .map_err(|e| Error::of_process(self.pid, "read exe", e))?;
        let bytes = path.as_os_str().as_bytes();
        Ok(match bytes.strip_suffix(b" (deleted)") {
            Some(kept) => Path::new(std::ffi::OsStr::from_bytes(kept)).into(),
            None => path,
        })
    }

    /// Fails if tiptoe's BPF programs cannot identify the process, because tiptoe is neither in the first pid namespace
    /// nor in the process's.
    pub fn known_in_kernel(self) -> Result<()> {
        let namespace = |of: Process| fs::read_link(of.path("ns/pid")).ok();
        match in_first_pid_namespace() || namespace(self) == namespace(Process::current()) {
            true => Ok(()),
            false => Err(Error::OtherNamespace { pid: self.pid }),
        }
    }

    /// Opens the process's program, even if unlinked or in another mount namespace.
    pub fn open_exe(self) -> Result<File> {
        let found = self.through_living(|thread| hold(&thread.path("exe")));
        let held = found.map_err(|e| Error::of_process(self.pid, "open the program", e))?;
        self.read_regular(held, Path::new("exe"))
    }

    /// Opens the process's memory for reading.
    pub fn open_memory(self) -> Result<File> {
        let opened = File::open(self.path("mem"));
        opened.map_err(|e| Error::of_process(self.pid, "read the memory", e))
    }

    /// Opens a mapping's file.
    pub fn open_mapped(self, mapping: &Mapping) -> Result<File> {
        let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        let path = mapping.file().unwrap_or(Path::new("anonymous memory"));
        match self.through_living(|thread| hold(&thread.path(&link))) {
            Ok(held) => self.read_regular(held, path),
            Err(_) => self.open_mapped_by_path(mapping, path),
        }
    }

    /// Opens a file by its path inside the target's root.
    pub fn open_in_root(self, path: &Path) -> Result<File> {
        let held = match self.through_living(|thread| hold(&thread.path("root"))) {
            Ok(root) => hold_below(&root, path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => hold(path),
            Err(e) => return Err(Error::of_process(self.pid, "open the root directory", e)),
        };
        self.read_regular(held.map_err(|e| Error::of_file(path, e))?, path)
    }

    /// Opens a file by a path that the process itself may use: inside the target's root, and from its working directory.
    pub fn open_in_cwd(self, path: &Path) -> Result<File> {
        let cwd = fs::read_link(self.path("cwd"));
        let cwd = cwd.map_err(|e| Error::of_process(self.pid, "read the working directory", e))?;
        self.open_in_root(&cwd.join(path))
    }

    fn read_regular(self, held: File, path: &Path) -> Result<File> {
        if is_foreign(&held, self) {
            return Err(Error::ForeignServer { path: path.into() });
        }
        let metadata = held.metadata().map_err(|e| Error::of_file(path, e))?;
        if !metadata.is_file() {
            return Err(Error::NotRegularFile { path: path.into() });
        }
        File::open(path_of(&held)).map_err(|e| Error::of_file(path, e))
    }

    fn open_mapped_by_path(self, mapping: &Mapping, path: &Path) -> Result<File> {
        let replaced = || Error::FileReplaced { path: path.into() };
        if mapping.deleted {
            return Err(replaced());
        }
        let file = self.open_in_root(path)?;
        let found = file.metadata().map_err(|e| Error::of_file(path, e))?;
        let is_same = found.ino() == mapping.inode;
        is_same.then_some(file).ok_or_else(replaced)
    }
}

/// Returns a path of an open file, for uprobes. The path is valid in any mount namespace, even after a rename.
pub fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn hold(path: &Path) -> io::Result<File> {
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH)
        .open(path)
}

/// Neither links to `/` nor `..` lead out.
fn hold_below(root: &File, path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn own_mappings_open() {
        let me = Process::current();
        let maps = me.maps().unwrap();
        let code = maps
            .iter()
            .find(|m| m.perms.exec && m.file().is_some())
            .unwrap();
        for file in [
            me.open_mapped(code),
            me.open_mapped_by_path(code, code.file().unwrap()),
            me.open_exe(),
        ] {
            let mut magic = [0; 4];
            file.unwrap().read_exact(&mut magic).unwrap();
            assert_eq!(&magic, b"\x7fELF");
        }
    }

    #[test]
    fn files_of_a_process_that_has_ended_are_found() {
        let mut child = std::process::Command::new("sleep")
            .arg("10")
            .spawn()
            .unwrap();
        let process = Process::new(child.id()).unwrap();
        // `spawn` may return before exec has mapped the program.
        let code = loop {
            let mut maps = process.maps().unwrap().into_iter();
            if let Some(code) = maps.find(|m| m.perms.exec && m.file().is_some()) {
                break code;
            }
            std::thread::yield_now();
        };
        child.kill().unwrap();
        while fs::read_link(process.path("root")).is_ok() {
            std::thread::yield_now();
        }
        let opened = process.open_mapped(&code);
        child.wait().unwrap();
        opened.unwrap();
    }

    #[test]
    fn only_regular_files_and_only_the_mapped_one() {
        let me = Process::current();
        for path in ["/dev/null", "/proc", "/"] {
            let error = me.open_in_root(Path::new(path)).unwrap_err();
            assert!(
                matches!(error, Error::NotRegularFile { .. }),
                "{path}: {error}"
            );
        }
        let maps = me.maps().unwrap();
        let mut code = maps.into_iter().find(|m| m.file().is_some()).unwrap();
        code.inode += 1;
        let path = code.file().unwrap();
        let error = me.open_mapped_by_path(&code, path).unwrap_err();
        assert!(matches!(error, Error::FileReplaced { .. }), "{error}");
    }

    #[test]
    fn anonymous_memory_has_no_file() {
        let me = Process::current();
        let maps = me.maps().unwrap();
        let anonymous = maps.iter().find(|m| m.file().is_none()).unwrap();
        assert!(me.open_mapped(anonymous).is_err());
    }
}
