//! The terminal on stderr, for a line that may be left out.

use std::io::{IsTerminal, stderr};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Returns whether a write to stderr appears on a terminal at once. Returns `false` while this process is in the
/// background, because the terminal is then another program's and the write may stop this one (SIGTTOU), and while the
/// user has stopped the output (Ctrl-S), because the write would wait.
pub fn takes_a_line() -> bool {
    let stderr = stderr();
    if !stderr.is_terminal() {
        return false;
    }
    // Without job control the call fails, and no process is in the background.
    let is_in_front = tcgetpgrp(&stderr).map_or(true, |group| group == getpgrp());
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    is_in_front && polled.is_ok() && fds[0].revents().contains(PollFlags::OUT)
}
