//! Threads that block the signals the agent needs.

use std::time::Duration;

use super::InjectError;
use super::process::{self, Process};
use super::tracee::{Held, Missed};

/// How long one thread may take to stop.
const PATIENCE: Duration = Duration::from_millis(200);

/// The threads that block signals of `signals`, and which.
pub(super) fn blocked(pid: u32, signals: u64) -> Result<Vec<(u32, u64)>, InjectError> {
    let mut blocked = Vec::new();
    for tid in process::threads(pid)? {
        match process::status(pid, tid) {
            Ok(status) if status.blocked & signals != 0 => {
                blocked.push((tid, status.blocked & signals));
            }
            _ => {}
        }
    }
    Ok(blocked)
}

/// Unblocks `signals` in some threads of a process, one after the other; each is stopped for
/// some microseconds and its system call goes on. The number of threads that were changed.
pub fn unblock(pid: u32, tids: &[u32], signals: u64) -> Result<usize, InjectError> {
    Process::open(pid)?;
    let mut changed = 0;
    for tid in tids {
        // A thread of ours for each: its end lets go of one that would not stop.
        let hand = std::thread::scope(|scope| scope.spawn(|| unblock_one(*tid, signals)).join());
        match hand {
            Ok(Ok(())) => changed += 1,
            Ok(Err(Missed::Os(errno))) => {
                return Err(InjectError::os(pid, "ptrace", errno.into()));
            }
            _ => {}
        }
    }
    Ok(changed)
}

fn unblock_one(tid: u32, signals: u64) -> Result<(), Missed> {
    let held = Held::stop(tid, PATIENCE)?;
    held.set_signal_mask(held.signal_mask()? & !signals)
}
