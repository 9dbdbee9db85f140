//! A program that runs, prints `ready`, and waits until its input ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub struct Process {
    child: Child,
    memory: File,
}

impl Process {
    pub fn start(path: &Path) -> Process {
        let mut command = Command::new(path);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        Process { child, memory }
    }

    pub fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, address).is_ok()
    }

    pub fn base(&self, path: &str) -> Option<u64> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let line = maps.lines().find(|line| line.ends_with(path))?;
        u64::from_str_radix(line.split('-').next()?, 16).ok()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
