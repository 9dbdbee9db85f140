//! Reads the target's memory, mappings, threads and their state from /proc.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use tiptoe_sys::host::procfs::{self, RunningProgram};

use crate::error::inject_error::{InjectCall, InjectError};

#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub permissions: [u8; 4],
    /// The device as the maps file prints it.
    pub device: String,
    /// 0 without a file.
    pub inode: u64,
    pub path: String,
}

impl Status {
    pub(super) fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }

    /// Returns whether the thread's /proc folder shows the memory, which a thread drops before it ends.
    fn shows_memory(&self) -> bool {
        self.lives() && self.memory
    }
}

impl Mapping {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let permissions = words.next()?.as_bytes().try_into().ok()?;
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let device = words.next()?.to_owned();
        let inode = words.next()?.parse().ok()?;
        Some(Self {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            offset,
            permissions,
            device,
            inode,
            path: words.next().unwrap_or("").trim_start().to_owned(),
        })
    }

    pub(super) fn is_text(&self) -> bool {
        &self.permissions == b"r-xp" && self.inode != 0
    }

    pub(super) fn same_file(&self, other: &Self) -> bool {
        self.inode == other.inode && self.device == other.device && self.path == other.path
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Status {
    pub state: char,
    /// The process's number of threads.
    pub threads: usize,
    pub tracer: u32,
    pub seccomp: bool,
    memory: bool,
    pub blocked: u64,
    /// Signals pending for this thread alone.
    pub pending: u64,
}

pub(super) struct Process {
    pub pid: u32,
    program: RunningProgram,
    memory: File,
}

/// The most tries. A try fails if the thread whose /proc folder is read is just ending.
const TRIES: u32 = 100;

/// Returns a thread whose /proc folder shows the memory: the first thread if possible, but others may outlive
/// it.
fn view(pid: u32) -> Result<u32, InjectError> {
    let shows = |tid: &u32| status(pid, *tid).is_ok_and(|status| status.shows_memory());
    if shows(&pid) {
        return Ok(pid);
    }
    let mut tids = threads(pid)?;
    tids.sort_unstable();
    let found = tids.into_iter().find(shows);
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
            // Only exec changes program and memory. So if the program stayed the same, the opened memory is its
            // own.
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

    /// Returns what `look` reads in the target's /proc folder. If that folder's thread has ended, repeats it in
    /// another's.
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

    /// Returns the process that holds [`Process::try_lock`]'s lock, unless it is in another namespace.
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

    /// Returns whether a thread with the opened memory lives. After an exec none does.
    pub(super) fn lives(&self) -> bool {
        !is_given_up(&self.memory) && view(self.pid).is_ok_and(|view| !self.is_left_by(view))
    }

    /// Returns whether a thread runs another program than the opened memory's. A stopped thread cannot call
    /// exec, so the answer stays true.
    pub(super) fn is_left_by(&self, tid: u32) -> bool {
        runs(self.pid, tid).is_some_and(|now| now.differs(&self.program))
    }

    /// Returns the mappings by address.
    pub(super) fn mappings(&self) -> Result<Vec<Mapping>, InjectError> {
        let text = self
            .look(|folder| fs::read(folder.join("maps")))
            .map_err(|error| InjectError::os(self.pid, InjectCall::ReadMappings, error))?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter_map(Mapping::parse).collect())
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

    /// Writes into the target's memory, even if it is read-only there.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_all_at(bytes, address)
    }

    /// Returns whether a page is the file's, not a private copy.
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
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        let entry = auxv
            .chunks_exact(16)
            .find(|entry| word(&entry[..8]) == Some(key))?;
        word(&entry[8..])
    }

    /// Opens a mapping's file through [`procfs`], because the target chose the file: it may be a pipe, a device,
    /// or a link out of the target's root.
    pub(super) fn open_file(&self, mapping: &Mapping) -> io::Result<File> {
        let process = procfs::Process::new(self.pid).map_err(io::Error::other)?;
        let (path, deleted) = match mapping.path.strip_suffix(" (deleted)") {
            Some(path) => (path, true),
            None => (mapping.path.as_str(), false),
        };
        let known = procfs::Mapping {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            inode: mapping.inode,
            path: Some(path.into()),
            deleted,
            perms: Default::default(),
            dev: Default::default(),
        };
        process.open_mapped(&known).or_else(|error| {
            // On an overlay the inode numbers differ, but the first pages must be equal.
            let file = process.open_in_root(path.as_ref());
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

fn runs(pid: u32, tid: u32) -> Option<RunningProgram> {
    let process = procfs::Process::new(pid).ok()?;
    process.program_of_thread(tid).ok()
}

/// Returns whether no process uses an open /proc/PID/mem any more: then a read far above any mapping returns
/// nothing, not an error.
pub fn is_given_up(memory: &File) -> bool {
    const NOWHERE: u64 = 1 << 62;
    memory
        .read_at(&mut [0], NOWHERE)
        .is_ok_and(|read| read == 0)
}

pub(super) fn threads(pid: u32) -> Result<Vec<u32>, InjectError> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"))
        .map_err(|error| InjectError::os(pid, InjectCall::ReadThreads, error))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

pub(super) fn status(pid: u32, tid: u32) -> Result<Status, InjectError> {
    let text = fs::read(format!("/proc/{pid}/task/{tid}/status"))
        .map_err(|error| InjectError::os(pid, InjectCall::ReadStatus, error))?;
    // A thread's name may contain any bytes.
    let text = String::from_utf8_lossy(&text);
    let mut status = Status::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(":\t") else {
            continue;
        };
        match key {
            "State" => status.state = value.chars().next().unwrap_or('X'),
            "Threads" => status.threads = value.parse().unwrap_or(0),
            "TracerPid" => status.tracer = value.parse().unwrap_or(0),
            "VmSize" => status.memory = true,
            "Seccomp" => status.seccomp = value != "0",
            "SigPnd" => status.pending = u64::from_str_radix(value, 16).unwrap_or(0),
            "SigBlk" => status.blocked = u64::from_str_radix(value, 16).unwrap_or(0),
            _ => {}
        }
    }
    Ok(status)
}

pub(super) fn syscall(pid: u32, tid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default()
}
