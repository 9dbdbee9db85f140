//! The phase of this process's run, which decides what a signal does.
//!
//! The driver's loops check `stop` every few milliseconds. The code before them reads what targets
//! made (files, debug information), which may take forever. In that phase a signal must end tiptoe
//! itself; its agents then restore their targets. These are statics, because signals belong to the
//! process.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::stops::{self, Stop};

/// What the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It looks for what to count, and enters the target.
    Preparing,
    /// It counts in a part of what it was asked for, and enters the rest.
    Attaching,
    /// It counts.
    Counting,
    /// It detaches, and makes the report.
    Ending,
    /// It waits for the command's end.
    Waiting,
}

// Relaxed: none of these orders other data.
static PHASE: AtomicU8 = AtomicU8::new(Phase::Preparing as u8);
/// The command that was started, until it was reaped.
static COMMAND: AtomicU32 = AtomicU32::new(0);
/// The thread that starts the command, until exec. Its child is known through it before the child
/// has sent its id.
static STARTER: AtomicU32 = AtomicU32::new(0);

impl Phase {
    /// Returns what the driver does now.
    pub fn now() -> Phase {
        let all = [
            Phase::Preparing,
            Phase::Attaching,
            Phase::Counting,
            Phase::Ending,
        ];
        let now = PHASE.load(Relaxed);
        let found = all.into_iter().find(|phase| *phase as u8 == now);
        found.unwrap_or(Phase::Waiting)
    }

    /// Begins this phase.
    pub fn begin(self) {
        PHASE.store(self as u8, Relaxed);
    }
}

/// Sets the started command, or 0 once it was reaped.
pub fn set_command(pid: u32) {
    COMMAND.store(pid, Relaxed);
}

/// Notes that this thread starts the command, or, with `false`, has done so.
pub fn set_starter(starts: bool) {
    // SAFETY: gettid has no arguments.
    let own = unsafe { libc::gettid() }.cast_unsigned();
    STARTER.store(if starts { own } else { 0 }, Relaxed);
}

/// Returns the processes that the starter has forked.
fn forked() -> Vec<i32> {
    let starter = match STARTER.load(Relaxed) {
        0 => return Vec::new(),
        starter => starter,
    };
    let list = std::fs::read_to_string(format!("/proc/self/task/{starter}/children"));
    let list = list.unwrap_or_default();
    let ids = list.split_ascii_whitespace().map(str::parse);
    ids.flatten().filter(|pid| *pid > 0).collect()
}

/// Returns whether no command of ours runs.
pub fn has_no_command() -> bool {
    let pid = COMMAND.load(Relaxed);
    pid == 0 || has_exited(pid)
}

/// Ends the command when tiptoe ends. A command that has not begun is killed, so that it never
/// begins; any other one gets the signal.
pub fn end_command(signal: i32) {
    if COMMAND.load(Relaxed) == 0 {
        for pid in forked() {
            // SAFETY: kill takes two numbers; a child of ours that was not reaped keeps its id.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
    if has_no_command() {
        return;
    }
    let signal = match Phase::now() {
        Phase::Preparing => libc::SIGKILL,
        _ => signal,
    };
    // SAFETY: kill takes two numbers; nothing has waited for the child yet, so the id is its own.
    unsafe { libc::kill(COMMAND.load(Relaxed).cast_signed(), signal) };
}

/// Returns whether a child has exited, without reaping it, because its times must stay readable. One
/// that is held at exec has not.
pub(crate) fn has_exited(pid: u32) -> bool {
    matches!(stops::peek(pid, libc::WNOHANG), Ok(Stop::Ended) | Err(_))
}
