//! How far the run of this process is, for whoever decides what a signal does.
//!
//! The loops of the driver look at `stop` every few milliseconds. What comes before them reads what targets made (files,
//! debug information), and may take for ever: there a signal ends tiptoe itself, whose agents then restore their targets.
//! Signals are the process's, and so is the phase: these are statics.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use crate::run::has_exited;

/// What the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// It looks for what to count, and goes in.
    Preparing,
    /// It counts.
    Counting,
    /// It detaches, and makes the report.
    Ending,
    /// It waits for the command's end.
    Waiting,
}

// Relaxed: each is the whole message.
static PHASE: AtomicU8 = AtomicU8::new(Phase::Preparing as u8);
/// The command that was started, until somebody waited for it.
static COMMAND: AtomicU32 = AtomicU32::new(0);
/// The thread that starts it, until it has called exec: that of a process which has not said its id yet.
static STARTER: AtomicU32 = AtomicU32::new(0);

impl Phase {
    /// What the driver does now.
    pub fn now() -> Phase {
        let all = [Phase::Preparing, Phase::Counting, Phase::Ending];
        let now = PHASE.load(Relaxed);
        let found = all.into_iter().find(|phase| *phase as u8 == now);
        found.unwrap_or(Phase::Waiting)
    }

    pub(crate) fn begin(self) {
        PHASE.store(self as u8, Relaxed);
    }
}

/// A command was started, or, with 0, somebody waited for it.
pub(crate) fn set_command(pid: u32) {
    COMMAND.store(pid, Relaxed);
}

/// This thread starts the command, or, with `false`, has done so.
pub(crate) fn set_starter(starts: bool) {
    // SAFETY: gettid has no arguments.
    let own = unsafe { libc::gettid() }.cast_unsigned();
    STARTER.store(if starts { own } else { 0 }, Relaxed);
}

/// The processes that the starter has forked.
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

/// Whether no command of ours runs.
pub fn has_no_command() -> bool {
    let pid = COMMAND.load(Relaxed);
    pid == 0 || has_exited(pid)
}

/// Ends the command as tiptoe ends: one that did not begin never does, another gets the signal.
pub fn end_command(signal: i32) {
    if COMMAND.load(Relaxed) == 0 {
        for pid in forked() {
            // SAFETY: kill takes two numbers; a child of ours that nobody has waited for keeps its id.
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
    // SAFETY: kill takes two numbers; nobody has waited for the child, so the id is its own.
    unsafe { libc::kill(COMMAND.load(Relaxed).cast_signed(), signal) };
}
