//! Reads the target's memory, mappings, threads and their state from /proc.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tiptoe_sys::host::Error;
use tiptoe_sys::host::procfs::{self, Mapping, RunningProgram, Status};

use crate::error::inject_error::{InjectCall, InjectError};

pub(super) struct Process {
    pub pid: u32,
    program: RunningProgram,
    memory: File,
}

/// The most tries. A try fails if tiptoe reads the /proc folder of a thread that is just ending.
const TRIES: u32 = 100;

/// Returns a thread whose /proc folder shows the process's memory. This is the first thread, unless other threads
/// outlived it.
fn view(pid: u32) -> Result<u32, InjectError> {
    let found = procfs::Process::new(pid).and_then(procfs::Process::living_thread);
    let found = found.map_err(failed(pid, InjectCall::ReadThreads))?;
    found.ok_or(InjectError::NoSuchProcess { pid })
}

impl Process {
    pub(super) fn open(pid: u32, program: &RunningProgram) -> Result<Self, InjectError> {
        for _ in 0..TRIES {
            let view = view(pid)?;
            let before = runs(pid, view);
            if before.is_some_and(|now| now.differs(program)) {
                return Err(InjectError::Died { pid });
            }
            let memory = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(format!("/proc/{view}/mem"));
            // An ending thread drops its memory first; then its maps file is empty.
            let maps = fs::read(format!("/proc/{view}/maps"));
            // Only exec changes program and memory. So if the program is the same before and after the open, the
            // memory belongs to that program.
            let program = before.filter(|now| now.is_known() && runs(pid, view) == Some(*now));
            match (memory, program) {
                (Ok(memory), Some(program)) if maps.is_ok_and(|maps| !maps.is_empty()) => {
                    return Ok(Self {
                        pid,
                        program,
                        memory,
                    });
                }
                (Err(error), _) if error.raw_os_error() != Some(libc::ESRCH) => {
                    return Err(InjectError::os(pid, InjectCall::OpenMemory, error));
                }
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err(InjectError::NoSuchProcess { pid })
    }

    pub(super) fn proc(&self, name: &str) -> PathBuf {
        let view = view(self.pid).unwrap_or(self.pid);
        PathBuf::from(format!("/proc/{view}/{name}"))
    }

    /// Returns what `look` reads in the target's /proc folder, even if the thread of that folder ends meanwhile.
    pub(super) fn look<T>(&self, look: impl Fn(PathBuf) -> io::Result<T>) -> io::Result<T> {
        let mut folder = self.proc("");
        for _ in 1..TRIES {
            let found = look(folder.clone());
            match self.proc("") {
                now if now != folder => folder = now,
                _ => return found,
            }
        }
        look(folder)
    }

    pub(super) fn try_lock(&self) -> Result<(), TryLockError> {
        self.memory.try_lock()
    }

    /// Returns the process that holds [`Process::try_lock`]'s lock, unless that process is in another namespace.
    pub(super) fn lock_holder(&self) -> Option<u32> {
        let file = self.memory.metadata().ok()?;
        let (device, inode) = (file.dev(), file.ino());
        let name = format!(
            "{:02x}:{:02x}:{inode}",
            libc::major(device),
            libc::minor(device)
        );
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let holder = locks.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let is_flock = words.next() == Some("FLOCK");
            let (holder, file) = (words.nth(2)?, words.next()?);
            (is_flock && file == name).then_some(holder)
        })?;
        holder.parse().ok().filter(|holder| *holder != 0)
    }

    /// Returns whether a living thread uses the opened memory. After an exec, no thread of the process uses it.
    pub(super) fn lives(&self) -> bool {
        !is_given_up(&self.memory) && view(self.pid).is_ok_and(|view| !self.is_left_by(view))
    }

    /// Returns whether a thread runs another program than that of the opened memory. For a stopped thread the result
    /// cannot change, because the thread cannot call exec.
    pub(super) fn is_left_by(&self, tid: u32) -> bool {
        runs(self.pid, tid).is_some_and(|now| now.differs(&self.program))
    }

    pub(super) fn mappings(&self) -> Result<Vec<Mapping>, InjectError> {
        let text = self
            .look(|folder| fs::read(folder.join("maps")))
            .map_err(|error| InjectError::os(self.pid, InjectCall::ReadMappings, error))?;
        Mapping::parse_all(&text).map_err(failed(self.pid, InjectCall::ReadMappings))
    }

    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, address)
    }

    pub(super) fn read_some(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let read = self.memory.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    pub(super) fn read_u64(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn read_u32(&self, address: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes into the target's memory, even into read-only pages.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    pub(super) fn is_clean(&self, address: u64) -> io::Result<bool> {
        const PRESENT: u64 = 1 << 63;
        const FILE: u64 = 1 << 61;
        self.read_u64(address)?;
        let pagemap = File::open(self.proc("pagemap"))?;
        let mut entry = [0; 8];
        pagemap.read_exact_at(&mut entry, address / super::stub::PAGE * 8)?;
        Ok(u64::from_le_bytes(entry) & (PRESENT | FILE) == PRESENT | FILE)
    }

    pub(super) fn auxv(&self, key: u64) -> Option<u64> {
        let auxv = self.look(|folder| fs::read(folder.join("auxv"))).ok()?;
        auxv_value(&auxv, key)
    }

    /// Opens a mapping's file through [`procfs`], because the target chose the file, which may be a pipe, a device,
    /// or a link out of the target's root.
    pub(super) fn open_file(&self, mapping: &Mapping) -> io::Result<File> {
        let process = procfs::Process::new(self.pid).map_err(io::Error::other)?;
        process.open_mapped(mapping).or_else(|error| {
            // On an overlay the inode numbers differ, but the first pages must be equal.
            let path = mapping.path.as_deref().unwrap_or(Path::new(""));
            let file = process.open_in_root(path);
            let same = file.ok().filter(|file| self.shows(mapping, file));
            same.ok_or_else(|| io::Error::other(error))
        })
    }

    fn shows(&self, mapping: &Mapping, file: &File) -> bool {
        let (mut memory, mut disk) = ([0; 4096], [0; 4096]);
        self.read(mapping.start, &mut memory).is_ok()
            && file.read_exact_at(&mut disk, mapping.offset).is_ok()
            && memory == disk
    }
}

pub(crate) fn auxv_value(auxv: &[u8], key: u64) -> Option<u64> {
    let (words, _) = auxv.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let pair = pairs
        .iter()
        .find(|[found, _]| u64::from_le_bytes(*found) == key);
    pair.map(|[_, value]| u64::from_le_bytes(*value))
}

fn runs(pid: u32, tid: u32) -> Option<RunningProgram> {
    let process = procfs::Process::new(pid).ok()?;
    process.program_of_thread(tid).ok()
}

/// Returns whether no process uses the memory of an open /proc/PID/mem any more. For such memory, a read far above
/// any mapping returns no bytes instead of an error.
pub fn is_given_up(memory: &File) -> bool {
    const NOWHERE: u64 = 1 << 62;
    memory
        .read_at(&mut [0], NOWHERE)
        .is_ok_and(|read| read == 0)
}

pub(super) fn threads(pid: u32) -> Result<Vec<u32>, InjectError> {
    let threads = procfs::Process::new(pid).and_then(procfs::Process::threads);
    threads.map_err(failed(pid, InjectCall::ReadThreads))
}

pub(super) fn status(pid: u32, tid: u32) -> Result<Status, InjectError> {
    let status = procfs::Process::new(pid).and_then(|process| process.thread_status(tid));
    status.map_err(|error| match error {
        // While a thread ends, its file may have 0 as Tgid.
        Error::Malformed { .. } => InjectError::NoSuchProcess { pid },
        error => failed(pid, InjectCall::ReadStatus)(error),
    })
}

fn failed(pid: u32, call: InjectCall) -> impl Fn(Error) -> InjectError {
    move |error| match error {
        Error::NoSuchProcess { .. } => InjectError::NoSuchProcess { pid },
        Error::PermissionDenied { .. } => {
            InjectError::os(pid, call, io::Error::from_raw_os_error(libc::EACCES))
        }
        Error::Io { source, .. } => InjectError::os(pid, call, source),
        error => InjectError::os(pid, call, io::Error::other(error)),
    }
}

pub(super) fn syscall(pid: u32, tid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default()
}
