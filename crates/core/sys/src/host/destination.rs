//! Opens an output file that a user names (`-o`). No other code may open such files, because a plain open in an
//! attacker's folder could hang, or write to the wrong file. Rules:
//!
//! 1. In a sticky folder that all may write to (`/tmp`), a link or file must belong to this user or the
//!    folder's owner, as with `fs.protected_symlinks`.
//! 2. A pipe or device must belong to this user or root, or be one of tiptoe's descriptors. A pipe must have a reader,
//!    because otherwise the open would wait.
//! 3. A new file is written beside the old one, gets the old one's mode and owner, and then replaces it in one step.
//! 4. Other users may not read a new file that root writes, or that is `private`.
//!
//! Each part of the path is checked through an `O_PATH` descriptor, so that no part can be replaced between check and
//! use.

use std::prelude::rust_2024::*;

use std::ffi::{OsStr, OsString};
use std::format;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::{fs, process};

const MOST_LINKS: u32 = 40;
const MOST_NAMES: u32 = 16;
const PROC_MAGIC: i64 = 0x9fa0;

/// An opened destination.
#[derive(Debug)]
pub enum Destination {
    /// A file that gets its name once complete.
    Whole(WholeFile),
    /// A device, a pipe, or one of our descriptors.
    Direct(File),
}

/// A file under a temporary name until [`WholeFile::appear`]. A drop before that call removes the file.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    folder: OwnedFd,
    temporary: OsString,
    name: OsString,
    has_name: AtomicBool,
}

/// Why a file is not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// Rule 1 forbids the link.
    #[error("another user's link leads there")]
    ForeignLink,
    /// Rule 1 forbids the file.
    #[error("the file belongs to another user, in a folder that all users may write to")]
    ForeignFile,
    /// Rule 2 forbids the pipe or device.
    #[error("the pipe or device belongs to another user")]
    ForeignDevice,
    /// Opening the pipe would wait.
    #[error("no process reads from the pipe")]
    NoReader,
    /// The new file cannot get the old one's owner.
    #[error("the file belongs to another user or group, and this user cannot keep that")]
    OwnerLost,
    /// Any other failure.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl From<Errno> for DestinationError {
    fn from(error: Errno) -> DestinationError {
        DestinationError::Io(error.into())
    }
}

enum PathEnd {
    /// A folder, a name in the folder, and the file of that name if it exists.
    Named(OwnedFd, OsString, Option<OwnedFd>),
    /// The object of a link in /proc, and whether it is one of tiptoe's descriptors.
    Nameless(OwnedFd, bool),
}

impl Destination {
    /// Opens a file for writing. `private` hides a new file from other users.
    pub fn open(path: &Path, private: bool) -> Result<Destination, DestinationError> {
        let (held, is_own) = match find(path)? {
            PathEnd::Named(folder, name, None) => {
                let mode = match private || process::geteuid().is_root() {
                    true => 0o600,
                    false => 0o666,
                };
                return Ok(Destination::Whole(WholeFile::new(folder, name, mode)?));
            }
            PathEnd::Named(folder, name, Some(held)) if is_regular(&held)? => {
                return replacement(folder, name, &fs::fstat(held)?).map(Destination::Whole);
            }
            PathEnd::Named(_, _, Some(held)) => (held, false),
            PathEnd::Nameless(held, is_own) => (held, is_own),
        };
        let owner = fs::fstat(&held)?.st_uid;
        if !is_own && owner != 0 && owner != process::geteuid().as_raw() {
            return Err(DestinationError::ForeignDevice);
        }
        open_at_once(&held).map(Destination::Direct)
    }
}

impl WholeFile {
    pub(super) fn new(
        folder: OwnedFd,
        name: OsString,
        mode: u32,
    ) -> Result<WholeFile, DestinationError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for _ in 0..MOST_NAMES {
            let number = RandomState::new().hash_one(process::getpid());
            let temporary = OsString::from(format!(".tiptoe-{number:016x}"));
            match fs::openat(&folder, &temporary, flags, Mode::from_raw_mode(mode)) {
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(file) => {
                    let file = File::from(file);
                    return Ok(WholeFile {
                        file,
                        folder,
                        temporary,
                        name,
                        has_name: AtomicBool::new(false),
                    });
                }
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Returns the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name, replacing an existing file.
    pub fn commit(&self) -> io::Result<()> {
        // A full disk may be reported only now.
        self.file.sync_data()?;
        self.appear()
    }

    /// Gives the file its name, even if the content is incomplete or not yet on the disk.
    pub fn appear(&self) -> io::Result<()> {
        // Relaxed: only one thread writes a report.
        if self.has_name.load(Relaxed) {
            return Ok(());
        }
        fs::renameat(&self.folder, &self.temporary, &self.folder, &self.name)?;
        self.has_name.store(true, Relaxed);
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if !self.has_name.load(Relaxed) {
            let _ = fs::unlinkat(&self.folder, &self.temporary, AtFlags::empty());
        }
    }
}

fn replacement(folder: OwnedFd, name: OsString, old: &Stat) -> Result<WholeFile, DestinationError> {
    if !may_be_used(&fs::fstat(&folder)?, old) {
        return Err(DestinationError::ForeignFile);
    }
    let whole = WholeFile::new(folder, name, 0o600)?;
    let new = fs::fstat(&whole.file)?;
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid) {
        let (uid, gid) = (Uid::from_raw(old.st_uid), Gid::from_raw(old.st_gid));
        fs::fchown(&whole.file, Some(uid), Some(gid)).map_err(|error| match error {
            Errno::PERM => DestinationError::OwnerLost,
            error => error.into(),
        })?;
    }
    // Setuid and similar bits are dropped, because they would give rights to others.
    fs::fchmod(&whole.file, Mode::from_raw_mode(old.st_mode & 0o777))?;
    Ok(whole)
}

/// Checks rule 1.
fn may_be_used(folder: &Stat, entry: &Stat) -> bool {
    let is_shared = folder.st_mode & 0o1002 == 0o1002;
    let owners = [process::geteuid().as_raw(), folder.st_uid];
    !is_shared || owners.contains(&entry.st_uid)
}

fn open_at_once(held: &OwnedFd) -> Result<File, DestinationError> {
    // Append, so that earlier output stays.
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let opened = fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NXIO => DestinationError::NoReader,
        error => error.into(),
    })?;
    fs::fcntl_setfl(&opened, fs::fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
    Ok(File::from(opened))
}

fn find(path: &Path) -> Result<PathEnd, DestinationError> {
    let bytes = path.as_os_str().as_bytes();
    let mut folder = start(bytes)?;
    let mut rest = parts(bytes);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        let is_last = rest.is_empty();
        let held = match hold(&folder, &name, OFlags::NOFOLLOW) {
            Err(Errno::NOENT) if is_last => return Ok(PathEnd::Named(folder, name, None)),
            held => held?,
        };
        let stat = fs::fstat(&held)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Symlink if fs::fstatfs(&folder)?.f_type == PROC_MAGIC => {
                // A link in /proc refers to an object, not to a path.
                let held = hold(&folder, &name, OFlags::empty())?;
                if is_last {
                    return Ok(PathEnd::Nameless(held, is_of_our_descriptors(&folder)?));
                }
                folder = held;
            }
            FileType::Symlink => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if !may_be_used(&fs::fstat(&folder)?, &stat) {
                    return Err(DestinationError::ForeignLink);
                }
                let target = fs::readlinkat(&held, c"", Vec::new())?.into_bytes();
                if target.starts_with(b"/") {
                    folder = start(&target)?;
                }
                rest.extend(parts(&target));
            }
            FileType::Directory => folder = held,
            _ if is_last => return Ok(PathEnd::Named(folder, name, Some(held))),
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Err(Errno::ISDIR.into())
}

fn start(path: &[u8]) -> Result<OwnedFd, Errno> {
    match path {
        [] => Err(Errno::NOENT),
        [b'/', ..] => hold(CWD, OsStr::new("/"), OFlags::DIRECTORY),
        _ => hold(CWD, OsStr::new("."), OFlags::DIRECTORY),
    }
}

/// Returns a path's parts, the last first. A trailing slash adds `.`.
fn parts(path: &[u8]) -> Vec<OsString> {
    let parts = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty());
    let mut parts: Vec<OsString> = parts
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect();
    if path.ends_with(b"/") {
        parts.push(OsString::from("."));
    }
    parts.reverse();
    parts
}

fn hold(folder: impl std::os::fd::AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    fs::openat(
        folder,
        name,
        OFlags::PATH | OFlags::CLOEXEC | flags,
        Mode::empty(),
    )
}

fn is_regular(held: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fs::fstat(held)?.st_mode) == FileType::RegularFile)
}

fn is_of_our_descriptors(folder: &OwnedFd) -> Result<bool, Errno> {
    let (own, this) = (fs::stat("/proc/self/fd")?, fs::fstat(folder)?);
    Ok((own.st_dev, own.st_ino) == (this.st_dev, this.st_ino))
}

#[cfg(test)]
#[path = "destination/tests.rs"]
mod tests;
