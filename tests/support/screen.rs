//! A terminal for tests.

use std::fs::File;
use std::io::{Read, Write};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::wait_until;

const LIMIT: Duration = Duration::from_secs(40);

/// A program on its own terminal.
pub struct OnTerminal {
    child: Child,
    keyboard: File,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    columns: usize,
}

impl OnTerminal {
    /// Starts a command on `columns` columns.
    pub fn start(command: &mut Command, columns: u16) -> OnTerminal {
        let (terminal, inside) = open(columns);
        let own = |fd: &OwnedFd| File::from(fd.try_clone().expect("a descriptor"));
        command
            .stdin(own(&inside))
            .stdout(own(&inside))
            .stderr(own(&inside));
        command.env("TERM", "xterm");
        // SAFETY: both calls are safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("the program starts");
        drop(inside);
        // Otherwise `command` would keep the terminal open.
        command.stdin(std::process::Stdio::null());
        command.stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (own(&terminal), Arc::clone(&seen));
        let reader = std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut some) {
                to.lock().expect("no reader panics").extend(&some[..count]);
            }
        });
        OnTerminal {
            child,
            keyboard: File::from(terminal),
            seen,
            reader: Some(reader),
            columns: columns.into(),
        }
    }

    /// Waits for a text.
    pub fn wait_for(&self, text: &str) {
        wait_until(text, LIMIT, || self.written().contains(text));
    }

    /// Returns the output, with escape sequences.
    pub fn written(&self) -> String {
        let seen = self.seen.lock().expect("no reader panics");
        String::from_utf8_lossy(&seen).into_owned()
    }

    /// Returns the lines on the terminal.
    pub fn shown(&self) -> Vec<String> {
        shown(&self.written(), self.columns)
    }

    /// Types Ctrl-C.
    pub fn interrupt(&mut self) {
        self.keyboard
            .write_all(b"\x03")
            .expect("the terminal takes it");
    }

    /// Waits for the end. Returns the output, the lines on the screen, and the status.
    pub fn finish(mut self) -> (String, Vec<String>, ExitStatus) {
        let status = self.child.wait().expect("our child");
        let reader = self.reader.take().expect("it is joined once");
        reader.join().expect("it does not panic");
        (self.written(), self.shown(), status)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(columns: u16) -> (OwnedFd, OwnedFd) {
    let (mut outside, mut inside) = (-1, -1);
    // SAFETY: an all-zero winsize is valid.
    let mut size: libc::winsize = unsafe { zeroed() };
    (size.ws_row, size.ws_col) = (24, columns);
    // SAFETY: the descriptors and the size are valid; name and attributes may be null.
    let opened = unsafe {
        libc::openpty(
            &raw mut outside,
            &raw mut inside,
            std::ptr::null_mut(),
            std::ptr::null(),
            &raw const size,
        )
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: nothing else owns the new descriptors.
    let both = unsafe { (OwnedFd::from_raw_fd(outside), OwnedFd::from_raw_fd(inside)) };
    for fd in [&both.0, &both.1] {
        // SAFETY: fcntl with these commands takes integers.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    both
}

/// Returns the terminal's lines. Panics at escape sequences that tiptoe does not use.
fn shown(written: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let mut at = 0;
    let mut rest = written.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => at = 0,
            '\n' => {
                lines.push(Vec::new());
                at = 0;
            }
            '\x1b' => {
                let mut sequence = String::new();
                while !sequence.ends_with(char::is_alphabetic) {
                    sequence.extend(rest.next());
                }
                match sequence.trim_start_matches('[') {
                    "K" => lines.last_mut().expect("a line").truncate(at),
                    other => assert!(other.ends_with('m'), "{other:?} in {written:?}"),
                }
            }
            c => {
                if at == columns {
                    lines.push(Vec::new());
                    at = 0;
                }
                let line = lines.last_mut().expect("a line");
                line.resize(line.len().max(at + 1), ' ');
                line[at] = c;
                at += 1;
            }
        }
    }
    let lines = lines.into_iter().map(|line| line.into_iter().collect());
    lines.collect()
}
