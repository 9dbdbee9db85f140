//! A forked child for measurements that would disturb this process. The child answers questions of one byte with
//! numbers, until its parent ends. The child must only do what is async-signal-safe, because locks that other threads
//! held at the fork are never released there.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::own;

const PATIENCE: Duration = Duration::from_secs(2);

/// A child, killed when dropped.
pub struct Child {
    pid: i32,
    line: UnixStream,
}

impl Child {
    /// Forks a child that answers each question by `answer`.
    ///
    /// # Safety
    /// `answer` must do only what a signal handler may: no allocation, no lock, no panic.
    pub unsafe fn start(answer: fn(u8) -> f64) -> io::Result<Child> {
        let (line, theirs) = UnixStream::pair()?;
        line.set_read_timeout(Some(PATIENCE))?;
        // SAFETY: the child closes, reads, writes, calls `answer` and ends. All are async-signal-safe, `answer` by
        // contract.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => serve(line.as_raw_fd(), theirs.as_raw_fd(), answer),
            pid => Ok(Child { pid, line }),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// Asks the child, and waits at most two seconds for the answer.
    pub fn ask(&mut self, question: u8) -> io::Result<f64> {
        let mut answer = [0; 8];
        self.line.write_all(&[question])?;
        self.line.read_exact(&mut answer)?;
        Ok(f64::from_ne_bytes(answer))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the child was not reaped yet, so the id is still the child's.
        own::with_helper(|| unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, std::ptr::null_mut(), 0) < 0
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        });
    }
}

/// Must close `parents`, the child's copy of the parent's end of the socket, because `read` returns 0 only after all
/// copies are closed.
fn serve(parents: i32, line: i32, answer: fn(u8) -> f64) -> ! {
    // SAFETY: the descriptors are ours, and the buffers have the given lengths.
    unsafe {
        libc::close(parents);
        let mut question = 0u8;
        while libc::read(line, (&raw mut question).cast(), 1) == 1 {
            let bytes = answer(question).to_ne_bytes();
            if libc::write(line, bytes.as_ptr().cast(), bytes.len()) != bytes.len() as isize {
                break;
            }
        }
        libc::_exit(0)
    }
}

/// Returns this thread's CPU time in ns; async-signal-safe.
pub(super) fn now_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_until_it_is_dropped() {
        // SAFETY: `f64::from` only converts a number.
        let mut child = unsafe { Child::start(f64::from) }.expect("a child");
        assert_eq!(child.ask(7).expect("an answer"), 7.0);
        assert_eq!(child.ask(255).expect("an answer"), 255.0);
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn a_child_that_dies_is_an_error() {
        fn die(_: u8) -> f64 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(3) }
        }
        // SAFETY: `_exit` is async-signal-safe.
        let mut child = unsafe { Child::start(die) }.expect("a child");
        assert!(child.ask(0).is_err());
    }
}
