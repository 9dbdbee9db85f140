//! A folder of this user's own, for what tiptoe keeps from one run to the next.
//!
//! Its path comes from the environment, which others may choose where tiptoe has rights that they have not. Rules:
//!
//! 1. The folder and the one that it is in belong to this user, so that nothing is made where only a right allows it.
//! 2. The folder is no link, and only this user may enter it.
//! 3. A file that is read is no link, is regular, has one name, and only this user may read or write it.
//! 4. A file is written under another name and renamed, so that readers see all of it or the file before.
//!
//! Folders are held by descriptors and examined before they are used. Whoever reads a file must still doubt its content.

use std::prelude::rust_2024::*;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::{fs, process};

use super::destination::{Refused, WholeFile};

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A folder that only this user may enter.
#[derive(Debug)]
pub struct OwnFolder(OwnedFd);

impl OwnFolder {
    /// Opens a folder; an error if it does not exist, or is not only this user's.
    pub fn open(path: &Path) -> io::Result<OwnFolder> {
        let (parent, name) = split(path)?;
        let parent = fs::openat(CWD, parent, FOLDER, Mode::empty())?;
        OwnFolder::within(&parent, name)
    }

    /// Opens a folder, which is made if it does not exist, and so is the one that it is in.
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

    /// Reads a file of at most `most` bytes; an error if it is longer, or not only this user's.
    pub fn read(&self, name: &str, most: usize) -> io::Result<Vec<u8>> {
        // A pipe is opened without waiting, and refused.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = fs::openat(&self.0, name, flags, Mode::empty())?;
        let stat = fs::fstat(&file)?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let is_own = stat.st_uid == process::geteuid().as_raw() && stat.st_mode & 0o7777 == 0o600;
        // One that was just replaced has no name.
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

    /// Writes a file, in the place of whatever has its name. It may be lost if the machine stops soon after.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Refused> {
        let folder = self.0.try_clone()?;
        let whole = WholeFile::new(folder, name.into(), 0o600)?;
        whole.file().write_all(bytes)?;
        Ok(whole.rename()?)
    }
}

/// The folder that a path's last part is in, and that part.
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
