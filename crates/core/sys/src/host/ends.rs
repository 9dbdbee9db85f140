//! Waiting for processes to end.

use std::prelude::rust_2024::*;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Processes that have not ended.
#[derive(Debug, Default)]
pub struct Ends(Vec<OwnedFd>);

impl Ends {
    /// Returns these processes. A missing one has ended; one that cannot be waited for never ends.
    pub fn of(pids: &[u32]) -> Ends {
        let open = |pid: &u32| {
            let pid = Pid::from_raw(pid.cast_signed())?;
            pidfd_open(pid, PidfdFlags::empty()).ok()
        };
        Ends(pids.iter().filter_map(open).collect())
    }

    /// Waits until a process ends, a signal arrives, or `time` passes. Returns whether all have
    /// ended.
    pub fn wait(&mut self, time: Duration) -> bool {
        let time = timespec(time);
        let mut fds: Vec<PollFd<'_>> = self
            .0
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        let polled = poll(&mut fds, Some(&time)).unwrap_or(0);
        let has_ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if polled > 0 {
            let mut has_ended = has_ended.into_iter();
            self.0.retain(|_| !has_ended.next().unwrap_or(false));
        }
        self.0.is_empty()
    }
}

/// Waits until one is readable or its writer has closed. Returns which are.
pub fn wait_to_read<const COUNT: usize>(from: [BorrowedFd<'_>; COUNT]) -> [bool; COUNT] {
    let mut fds = from.each_ref().map(|fd| PollFd::new(fd, PollFlags::IN));
    // A signal leaves none readable.
    let _ = poll(&mut fds, None);
    fds.each_ref().map(|fd| !fd.revents().is_empty())
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_seen() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut ends = Ends::of(&[child.id()]);
        assert!(!ends.wait(Duration::from_millis(1)));
        child.kill().unwrap();
        assert!(ends.wait(Duration::from_secs(30)));
        child.wait().unwrap();
        assert!(Ends::of(&[u32::MAX / 2]).wait(Duration::ZERO));
    }
}
