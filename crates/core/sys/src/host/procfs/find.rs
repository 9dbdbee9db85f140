//! Finds processes by name or by program.

use std::prelude::rust_2024::*;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Process, numbers};
use crate::host::error::{Error, Result};

/// The kernel keeps this many bytes of a name.
const COMM_LEN: usize = 15;

impl Process {
    /// Returns all processes in this pid namespace, in ascending order.
    pub fn all() -> Result<Vec<Self>> {
        let proc = Path::new("/proc");
        let entries = fs::read_dir(proc).map_err(|e| Error::of_file(proc, e))?;
        let mut pids = numbers(entries);
        pids.sort_unstable();
        Ok(pids.into_iter().map(|pid| Self { pid }).collect())
    }

    /// Returns processes of this name, except tiptoe itself. Only the first 15 bytes are compared.
    pub fn find_by_comm(name: &str) -> Result<Vec<Self>> {
        let name = name.as_bytes();
        let name = &name[..name.len().min(COMM_LEN)];
        Self::find(|process| process.comm().is_ok_and(|comm| comm.as_bytes() == name))
    }

    /// Returns processes that run this file, under any name, except tiptoe itself.
    pub fn find_by_exe(path: &Path) -> Result<Vec<Self>> {
        let wanted = fs::metadata(path).map_err(|e| Error::of_file(path, e))?;
        let wanted = (wanted.dev(), wanted.ino());
        Self::find(|process| {
            fs::metadata(process.path("exe")).is_ok_and(|exe| (exe.dev(), exe.ino()) == wanted)
        })
    }

    fn find(matches: impl Fn(Self) -> bool) -> Result<Vec<Self>> {
        let mut found = Self::all()?;
        found.retain(|process| *process != Self::current() && matches(*process));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_is_found_by_name_and_by_file() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let is_child = |p: &Process| p.pid() == pid;
        let process = Process::new(pid).unwrap();
        while process.comm().unwrap() != "sleep" {
            std::thread::yield_now();
        }
        let by_exe = Process::find_by_exe(&process.exe().unwrap()).unwrap();
        let by_comm = Process::find_by_comm("sleep").unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(by_comm.iter().any(is_child) && by_exe.iter().any(is_child));
        assert!(process.status().is_err());
    }
}
