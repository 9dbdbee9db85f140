//! Whether a terminal can take a line now.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

/// Returns whether a write appears at once. A write from the background may stop this process (SIGTTOU), and a write
/// after Ctrl-S waits.
pub fn takes_a_line(terminal: impl AsFd) -> bool {
    // tcgetpgrp fails without job control. Then no process is in the background.
    let is_in_front = tcgetpgrp(&terminal).map_or(true, |group| group == getpgrp());
    let mut fds = [PollFd::new(&terminal, PollFlags::OUT)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    is_in_front && polled.is_ok() && fds[0].revents().contains(PollFlags::OUT)
}
