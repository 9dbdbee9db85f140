//! This user's folder for data that tiptoe keeps between runs.
//!
//! Its path comes from the environment, which a user with fewer rights than tiptoe may control. Rules:
//!
//! 1. The folder and its parent must belong to this user. Otherwise the environment could make tiptoe create files in
//!    other users' folders.
//! 2. The folder must be no link, and only this user may enter it.
//! 3. A file is read only if it is regular, is no symbolic link, has no second hard link, and only this user may use
//!    it.
//! 4. A file is written under another name and renamed, so that readers see it whole.
//!
//! Folders are held by descriptors, because paths may change their meaning. Callers must check contents.

use std::prelude::rust_2024::*;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::{fs, process};

use super::destination::{DestinationError, WholeFile};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder that only this user may enter.
#[derive(Debug)]
pub struct OwnFolder(OwnedFd);

impl OwnFolder {
    /// Opens a folder. Fails if another user may use it.
    pub fn open(path: &Path) -> io::Result<OwnFolder> {
        let (parent, name) = split(path)?;
        let parent = fs::openat(CWD, parent, FOLDER, Mode::empty())?;
        OwnFolder::within(&parent, name)
    }

    /// Opens a folder; creates it and its parent if missing.
    pub fn make(path: &Path) -> io::Result<OwnFolder> {
        let (parent_path, name) = split(path)?;
        let parent = match fs::openat(CWD, parent_path, FOLDER, Mode::empty()) {
            Err(Errno::NOENT) => {
                let (above, name) = split(parent_path)?;
                let above = fs::openat(CWD, above, FOLDER, Mode::empty())?;
                make_within(&above, name)?;
                fs::openat(above, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?
            }
            parent => parent?,
        };
        make_within(&parent, name)?;
        OwnFolder::within(&parent, name)
    }

    fn within(parent: &OwnedFd, name: &OsStr) -> io::Result<OwnFolder> {
        must_be_own(parent)?;
        let folder = fs::openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        must_be_own(&folder)?;
        match fs::fstat(&folder)?.st_mode & 0o777 {
            0o700 => Ok(OwnFolder(folder)),
            _ => Err(Errno::PERM.into()),
        }
    }

    /// Reads a file of at most `most` bytes. Fails if another user may use it.
    pub fn read(&self, name: &str, most: usize) -> io::Result<Vec<u8>> {
        // Without NONBLOCK the open of a pipe would hang.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, name, flags, Mode::empty())?;
        let stat = fs::fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_own = stat.st_uid == process::geteuid().as_raw() && stat.st_mode & 0o7777 == 0o600;
        // A file that was replaced since the open has 0 links, and is accepted.
        if !is_file || !is_own || stat.st_nlink > 1 {
            return Err(Errno::PERM.into());
        }
        let mut bytes = Vec::new();
        File::from(file)
            .take(most as u64 + 1)
            .read_to_end(&mut bytes)?;
        match bytes.len() <= most {
            true => Ok(bytes),
            false => Err(Errno::FBIG.into()),
        }
    }

    /// Returns the files' names, in no order; omits names that are not UTF-8.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::openat(&self.0, ".", readable, Mode::empty())?;
        let names = fs::Dir::read_from(folder)?.filter_map(|entry| {
            let name = entry.ok()?.file_name().to_str().ok()?.to_owned();
            (!matches!(&*name, "." | "..")).then_some(name)
        });
        Ok(names.collect())
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.0, name, fs::AtFlags::empty())?)
    }

    /// Writes or replaces a file. A crash soon after may lose the content.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), DestinationError> {
        let folder = self.0.try_clone()?;
        let whole = WholeFile::new(folder, name.into(), 0o600)?;
        whole.file().write_all(bytes)?;
        Ok(whole.appear()?)
    }
}

/// Returns this user's folder for data that is lost at a reboot.
pub fn runtime_folder() -> Option<PathBuf> {
    let base = match process::geteuid().is_root() {
        true => PathBuf::from("/run"),
        false => std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)?,
    };
    base.is_absolute().then(|| base.join("tiptoe"))
}

fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let parts = path.parent().zip(path.file_name());
    parts.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn make_within(parent: &OwnedFd, name: &OsStr) -> io::Result<()> {
    must_be_own(parent)?;
    match fs::mkdirat(parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn must_be_own(folder: &OwnedFd) -> io::Result<()> {
    match fs::fstat(folder)?.st_uid == process::geteuid().as_raw() {
        true => Ok(()),
        false => Err(Errno::PERM.into()),
    }
}

#[cfg(test)]
#[path = "own_folder/tests.rs"]
mod tests;
