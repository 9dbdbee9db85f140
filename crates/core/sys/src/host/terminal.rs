//! Whether a terminal can take a line now, for lines that tiptoe may leave out.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Returns whether a write to this terminal appears at once. Returns `false` while this process is in the background,
/// because the terminal is then another program's and the write may stop this one (SIGTTOU), and while the user has
/// stopped the output (Ctrl-S), because the write would wait.
pub fn takes_a_line(terminal: impl AsFd) -> bool {
    // Without job control the call fails, and no process is in the background.
    let is_in_front = tcgetpgrp(&terminal).map_or(true, |group| group == getpgrp());
    let mut fds = [PollFd::new(&terminal, PollFlags::OUT)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    is_in_front && polled.is_ok() && fds[0].revents().contains(PollFlags::OUT)
}
