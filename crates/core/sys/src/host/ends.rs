//! Waits for the ends of processes, and for signals.

use std::prelude::rust_2024::*;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The pipe to which signal handlers write: reader, writer. Without an open writer, poll would always report the reader
/// as readable.
static SIGNALS: OnceLock<(OwnedFd, OwnedFd)> = OnceLock::new();

/// Lets signals end [`Ends::wait`]. Signal handlers must first store what the waiting thread must see, then write to
/// the returned pipe. Fails at a second call.
pub fn wake_by_signals() -> io::Result<OwnedFd> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let for_handlers = writer.try_clone()?;
    SIGNALS
        .set((reader, writer))
        .map_err(|_| io::ErrorKind::AlreadyExists)?;
    Ok(for_handlers)
}

/// Watched processes. A process that has ended is no longer watched, because it would wake all later waits.
#[derive(Debug, Default)]
pub struct Ends(Vec<OwnedFd>);

impl Ends {
    /// Watches processes. Before Linux 5.3, which added pidfds, no process wakes a wait.
    pub fn of(pids: impl IntoIterator<Item = u32>) -> Ends {
        Ends(pids.into_iter().filter_map(pidfd).collect())
    }

    /// Waits until a process ends, a signal arrives, or `time` passes.
    pub fn wait(&mut self, time: Duration) {
        let limit = Timespec::try_from(time).ok();
        let signals = SIGNALS.get().map(|(reader, _)| reader);
        let all = self.0.iter().chain(signals);
        let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, limit.as_ref()) {
            // An interrupted poll reports no descriptor as readable.
            Ok(_) | Err(Errno::INTR) => {}
            // Without this sleep the caller's loop would spin.
            Err(_) => std::thread::sleep(time),
        }
        let woken: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut woken = woken.into_iter();
        self.0.retain(|_| !woken.next().unwrap_or(false));
        if let (Some(true), Some(signals)) = (woken.next(), signals) {
            // Bytes that are not read here end the next wait.
            let _ = rustix::io::read(signals, &mut [0; 64]);
        }
    }
}

/// Opens a pidfd; `None` before Linux 5.3, or if there is no such process.
pub fn pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(pid.cast_signed())?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits until a descriptor is readable or at its end. Returns which descriptors are.
pub fn wait_to_read<const COUNT: usize>(from: [BorrowedFd<'_>; COUNT]) -> [bool; COUNT] {
    let mut fds = from.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
    let _ = poll(&mut fds, None);
    fds.each_ref().map(|fd| !fd.revents().is_empty())
}

/// Waits until a process ends, at most for `time`.
pub fn wait_for_end(process: BorrowedFd<'_>, time: Duration) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let mut fds = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
        if poll(&mut fds, left.as_ref()) != Err(Errno::INTR) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test of signals, because a signal wakes every wait of the process.
    #[test]
    fn an_end_and_a_signal_wake_once() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut ends = Ends::of([child.id(), u32::MAX / 2]);
        ends.wait(Duration::from_millis(1));
        assert_eq!(ends.0.len(), 1, "one runs, the other does not exist");
        child.kill().unwrap();
        ends.wait(Duration::from_secs(30));
        assert!(ends.0.is_empty());
        child.wait().unwrap();

        let writer = wake_by_signals().unwrap();
        assert!(wake_by_signals().is_err(), "handlers write to the first");
        rustix::io::write(&writer, b"x").unwrap();
        let is_readable = || {
            let mut fds = [PollFd::new(&SIGNALS.get().unwrap().0, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
        };
        assert!(is_readable());
        ends.wait(Duration::from_secs(30));
        assert!(!is_readable(), "or each later wait would end at once");
        drop(writer);
        assert!(!is_readable(), "also if all signals are ignored");
    }
}
