//! Waits for tiptoe's ready signal (`--ready-fd`).

use std::io::{PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The pipe to which tiptoe writes `ready`.
#[derive(Debug)]
pub struct Ready(PipeReader);

impl Ready {
    /// Adds `--ready-fd` to a tiptoe command, and calls `start` with the command.
    pub fn of<T>(command: &mut Command, start: impl FnOnce(&mut Command) -> T) -> (T, Ready) {
        let (near, far) = std::io::pipe().expect("a pipe");
        let fd = far.as_raw_fd();
        command.args(["--ready-fd", &fd.to_string()]);
        let inherit = move || {
            // SAFETY: fcntl touches no memory; the descriptor is open until `far` is dropped.
            match unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(inherit) };
        let started = start(command);
        (started, Ready(near))
    }

    /// Waits until tiptoe counts. Panics if tiptoe ends earlier. May be called once.
    pub fn wait(&self) {
        let mut said = String::new();
        (&self.0).read_to_string(&mut said).expect("text");
        assert_eq!(said, "ready\n", "tiptoe did not begin to count");
    }
}
