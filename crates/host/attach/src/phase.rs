//! The phase of the run, which decides what a signal does.
//!
//! A signal sets a flag, which the loops of the driver (the code that runs a session) check every few milliseconds.
//! Before these loops, tiptoe reads files of targets, which may take for ever. So until the loops run, a signal must
//! end tiptoe itself. The agents (tiptoe's libraries) then restore the targets. The phase is a static, because a
//! signal concerns the whole process.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

use tiptoe_sys::raw::gettid;

use crate::stops::{self, Stop};

/// What the driver is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// The driver finds what to count, and injects the agent.
    Preparing,
    /// The driver counts in some targets, and injects the agent into others.
    Attaching,
    /// The driver counts.
    Counting,
    /// The driver detaches, and the report is written.
    Ending,
    /// The driver waits for the command to end.
    Waiting,
}

// Relaxed: none of these statics orders other data.
static PHASE: AtomicU8 = AtomicU8::new(Phase::Preparing as u8);
/// The started command's id, until tiptoe has waited for the command; otherwise 0.
static COMMAND: AtomicU32 = AtomicU32::new(0);
/// A program that a started command runs, while tiptoe holds it; otherwise 0.
static HELD: AtomicU32 = AtomicU32::new(0);
/// The thread that starts the command, until exec; otherwise 0. The kernel's list of this thread's children shows
/// the command before tiptoe knows its id.
static STARTER: AtomicU32 = AtomicU32::new(0);

impl Phase {
    /// Returns the current phase.
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

/// Records the started command's id; 0 once tiptoe has waited for the command.
pub fn set_command(pid: u32) {
    COMMAND.store(pid, Relaxed);
}

/// Records a program that must not begin if tiptoe ends; 0 once it may.
pub(crate) fn set_held(pid: u32) {
    HELD.store(pid, Relaxed);
}

pub(crate) fn set_starter(is_starting: bool) {
    STARTER.store(if is_starting { gettid() } else { 0 }, Relaxed);
}

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

/// Returns `true` if tiptoe started no command, or the command has exited.
pub fn has_no_command() -> bool {
    let pid = COMMAND.load(Relaxed);
    pid == 0 || has_exited(pid)
}

/// Ends the command because tiptoe ends. A command that has not begun is killed; a running command gets the signal.
pub fn end_command(signal: i32) {
    if COMMAND.load(Relaxed) == 0 {
        for pid in forked() {
            // SAFETY: kill takes two numbers; a child of ours that was not reaped keeps its id.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
    let held = HELD.load(Relaxed).cast_signed();
    if held != 0 {
        // SAFETY: kill takes two numbers. The tracer resets the id before it reaps the program. Once the agent holds the
        // program, its parent could reap it, but only if it was killed meanwhile.
        unsafe { libc::kill(held, libc::SIGKILL) };
    }
    if has_no_command() {
        return;
    }
    let signal = match Phase::now() {
        Phase::Preparing => libc::SIGKILL,
        _ => signal,
    };
    // SAFETY: kill takes two numbers; nothing has waited for the child yet, so the id is still the child's.
    unsafe { libc::kill(COMMAND.load(Relaxed).cast_signed(), signal) };
}

/// Does not reap the child, whose CPU times must stay readable.
pub(crate) fn has_exited(pid: u32) -> bool {
    matches!(stops::peek(pid, libc::WNOHANG), Ok(Stop::Ended) | Err(_))
}
