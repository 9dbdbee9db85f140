//! Processes as `/proc` shows them.
//!
//! A [`Process`] is only a number, and caches nothing. Methods return [`Error::NoSuchProcess`] once the process has
//! ended. [`Process::thread_start_time`] detects a reused id.

mod asleep;
mod files;
mod maps;
mod mounts;
mod program;
mod stat;
mod status;
mod switches;

pub use files::path_of;
pub use maps::{Device, Mapping, Perms};
pub(super) use mounts::Mount;
pub use program::RunningProgram;
pub use status::{SignalSet, Status};
pub use switches::{births_of_all, switches_of_all, tasks_of_all};

use std::prelude::rust_2024::*;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::error::{Error, Result};

/// A process, by its id in tiptoe's pid namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process {
    pid: u32,
}

impl Process {
    /// Returns the process, if it exists.
    pub fn new(pid: u32) -> Result<Self> {
        let process = Self { pid };
        fs::metadata(process.path("")).map_err(|e| Error::of_process(pid, "look", e))?;
        Ok(process)
    }

    /// Returns tiptoe itself.
    pub fn current() -> Self {
        Self {
            pid: std::process::id(),
        }
    }

    /// Returns the id.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Returns all processes in this pid namespace, ascending.
    pub fn all() -> Result<Vec<Self>> {
        let proc = Path::new("/proc");
        let entries = fs::read_dir(proc).map_err(|e| Error::of_file(proc, e))?;
        Ok(numbers(entries).map(|pid| Self { pid }).collect())
    }

    /// Returns the process's threads, ascending.
    pub fn threads(self) -> Result<Vec<u32>> {
        let entries = fs::read_dir(self.path("task"))
            .map_err(|e| Error::of_process(self.pid, "list the threads", e))?;
        Ok(numbers(entries).collect())
    }

    /// Returns the main thread's name, at most 15 bytes.
    pub fn comm(self) -> Result<String> {
        self.comm_in("comm")
    }

    /// Returns a thread's name.
    pub fn thread_comm(self, tid: u32) -> Result<String> {
        self.comm_in(&format!("task/{tid}/comm"))
    }

    /// Returns the processes that a thread has started and not yet waited for; fails if the thread has ended,
    /// or the kernel has no such list.
    pub fn thread_children(self, tid: u32) -> Result<Vec<u32>> {
        let list = self.read(&format!("task/{tid}/children"))?;
        let list = String::from_utf8_lossy(&list);
        let ids = list.split_ascii_whitespace().map(str::parse);
        Ok(ids.flatten().collect())
    }

    /// Returns the process's arguments. Omits empty ones at the end, because a process that writes a title over
    /// its arguments leaves zeros there.
    pub fn command_line(self) -> Result<Vec<OsString>> {
        Ok(words(&self.read("cmdline")?))
    }

    /// Returns the process's mappings, ascending. A zombie has none.
    pub fn maps(self) -> Result<Vec<Mapping>> {
        Mapping::parse_all(&self.through_living(|thread| thread.read("maps"))?)
    }

    /// Returns whether the main thread ended while others run (`pthread_exit` in `main`).
    pub fn outlived_main_thread(self) -> bool {
        self.alive() != self
    }

    /// Returns a living thread, the main one if it lives; `None` if all have ended. An ended thread's files show no
    /// memory and no descriptors. A thread without memory counts as ended, because a thread drops its memory before
    /// its state changes.
    pub fn living_thread(self) -> Result<Option<u32>> {
        let lives = |tid: &u32| {
            let status = self.thread_status(*tid);
            status.is_ok_and(|status| status.has_memory && !status.has_ended())
        };
        match lives(&self.pid) {
            true => Ok(Some(self.pid)),
            false => Ok(self.threads()?.into_iter().find(lives)),
        }
    }

    fn alive(self) -> Self {
        let living = self.living_thread().ok().flatten();
        living.map_or(self, |pid| Self { pid })
    }

    /// Reads files of a living thread. If that thread ends meanwhile, reads another thread's files.
    fn through_living<T>(self, read: impl Fn(Self) -> T) -> T {
        let thread = self.alive();
        let found = read(thread);
        match self.alive() {
            other if other != thread => read(other),
            _ => found,
        }
    }

    /// Returns the process's status.
    pub fn status(self) -> Result<Status> {
        Status::parse(&self.read("status")?)
    }

    /// Returns a thread's status.
    pub fn thread_status(self, tid: u32) -> Result<Status> {
        Status::parse(&self.read(&format!("task/{tid}/status"))?)
    }

    fn comm_in(self, file: &str) -> Result<String> {
        let bytes = self.read(file)?;
        let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    fn path(self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    fn read(self, file: &str) -> Result<Vec<u8>> {
        fs::read(self.path(file))
            .map_err(|e| Error::of_process(self.pid, format!("read {file}"), e))
    }
}

fn words(bytes: &[u8]) -> Vec<OsString> {
    let Some(last) = bytes.iter().rposition(|byte| *byte != 0) else {
        return Vec::new();
    };
    let words = bytes[..=last].split(|byte| *byte == 0);
    words
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

fn numbers(entries: fs::ReadDir) -> impl Iterator<Item = u32> {
    let names = entries.flatten().map(|entry| entry.file_name());
    let mut numbers: Vec<u32> = names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn own_process_is_found_and_described() {
        let me = Process::current();
        assert_eq!(Process::new(me.pid()).unwrap(), me);
        assert!(me.threads().unwrap().contains(&me.pid()));
        assert_eq!(me.status().unwrap().tgid, me.pid());
        let here = own_process_is_found_and_described as *const () as u64;
        let maps = me.maps().unwrap();
        let code = maps.iter().find(|m| m.contains(here)).unwrap();
        assert!(code.perms.exec && !code.perms.write);
        assert_eq!(code.file().unwrap(), me.exe().unwrap());
    }

    #[test]
    fn titles_written_over_arguments_leave_no_empty_words() {
        assert_eq!(
            words(b"redis-server *:6379\0\0\0\0"),
            ["redis-server *:6379"]
        );
        assert_eq!(words(b"sh\0-c\0\0x\0"), ["sh", "-c", "", "x"]);
        assert!(words(b"").is_empty() && words(b"\0\0").is_empty());
    }

    #[test]
    fn absent_process_is_named_in_the_error() {
        let error = Process::new(u32::MAX / 2).unwrap_err();
        assert!(matches!(error, Error::NoSuchProcess { pid } if pid == u32::MAX / 2));
        let gone = Process { pid: u32::MAX / 2 };
        assert!(matches!(gone.maps(), Err(Error::NoSuchProcess { .. })));
        assert!(matches!(gone.cpu_time(), Err(Error::NoSuchProcess { .. })));
    }

    #[test]
    fn cpu_time_counts_threads_that_have_exited() {
        let me = Process::current();
        let before = me.cpu_time().unwrap();
        let burn = || {
            let start = std::time::Instant::now();
            while start.elapsed() < Duration::from_millis(30) {}
        };
        std::thread::spawn(burn).join().unwrap();
        assert!(me.cpu_time().unwrap() - before >= Duration::from_millis(5));
    }
}
