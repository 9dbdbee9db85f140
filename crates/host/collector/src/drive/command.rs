//! Waits for the end of a started command, and forwards signals to it.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tiptoe_attach::Attached;
use tiptoe_attach::phase::{Phase, set_command};
use tiptoe_session::{Note, ProcessNote};
use tiptoe_sys::host::ends::Ends;

use super::LOOK;
use crate::request::Observer;

/// If a command still runs this long after counting ended, a message explains why tiptoe waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the status of the command among the targets; `None` without a command. Forwards the first signal that
/// tiptoe gets. At a second signal, adds a note to the report, and returns the exit status of a process that this
/// signal killed.
pub fn wait_for_end<'a>(
    targets: impl IntoIterator<Item = &'a mut Attached>,
    hand_on: &AtomicUsize,
    observer: &mut dyn Observer,
    notes: &mut Vec<Note>,
) -> Option<i32> {
    let child = targets.into_iter().find_map(Attached::child)?;
    Phase::Waiting.begin();
    let status = wait(child, hand_on, observer, notes);
    Phase::Ending.begin();
    set_command(0);
    status
}

fn wait(
    child: &mut Child,
    hand_on: &AtomicUsize,
    observer: &mut dyn Observer,
    notes: &mut Vec<Note>,
) -> Option<i32> {
    let mut handed_on = false;
    let mut note_at = Some(Instant::now() + PATIENCE);
    let mut ends = Ends::of([child.id()]);
    loop {
        if let Some(ended) = child.try_wait().transpose() {
            return status_of(ended.ok()?);
        }
        // Relaxed: the number orders no other data.
        let signal = hand_on.swap(0, Ordering::Relaxed) as i32;
        if signal != 0 && handed_on {
            notes.push(ProcessNote::CommandContinues { signal }.into());
            return Some(128 + signal);
        }
        if signal != 0 {
            handed_on = true;
            // SAFETY: kill takes two numbers. The child was not reaped yet, so the id is still the child's.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
        if note_at.is_some_and(|at| Instant::now() >= at) {
            note_at = None;
            observer.note(&ProcessNote::WaitsForCommand.into());
        }
        let note_in = note_at.map(|at| at.saturating_duration_since(Instant::now()));
        ends.wait(note_in.unwrap_or(LOOK).min(LOOK));
    }
}

fn status_of(status: ExitStatus) -> Option<i32> {
    let signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signal)
}
