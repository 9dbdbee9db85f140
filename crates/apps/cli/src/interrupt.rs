//! Signals that ask tiptoe to end: Ctrl-C, SIGTERM and SIGHUP.
//!
//! A signal sets a flag. When the loop of the driver (which runs the trace) sees the flag, the loop ends the trace
//! and reports. But the driver may hang outside the loop, because reading a target's file may never end. So a
//! thread ends tiptoe if a phase lasts too long after a signal ([`patience`]). The agents (tiptoe's libraries in
//! the targets) then remove their patches. Without a command, a second signal ends tiptoe at once.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::pipe;
use tiptoe_collector::{Phase, RequestTarget, end_command, has_no_command};
use tiptoe_report::LiveNotes;
use tiptoe_session::{Note, ProcessNote};
use tiptoe_sys::host::Process;
use tiptoe_sys::host::ends::wake_by_signals;

use crate::notice::Notice;
use crate::output::NotesTo;
use crate::status;
use crate::terminal::{self, line};

/// The size of the thread's stack, which counts against `ulimit -d`.
const STACK: usize = 64 << 10;
/// The thread's pause between checks.
const TICK: Duration = Duration::from_millis(20);
/// How long preparing may continue after a signal, so that a nearly complete attach can succeed. The check may be
/// one [`TICK`] late, so tiptoe ends in less than 200 ms, as `tiptoe-dev bench interrupt` measures.
const PREPARING: Duration = Duration::from_millis(160);
/// How long the driver's loop may take to see the flag. The loop may be reading a newly loaded library.
const COUNTING: Duration = Duration::from_secs(2);
/// How long the report may take after a second signal if there is a command. The second signal does not end tiptoe
/// at once, because the user may have meant it for the command.
const ENDING: Duration = Duration::from_secs(5);

/// Set when a signal ends tiptoe, before [`end_command`].
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// If a signal is ending the process, waits for the end. A thread must call this before it reports a failure,
/// because [`end`] may have caused the failure by ending the command.
pub fn stay_if_ending() {
    // Acquire: pairs with the Release in `end`.
    while IS_ENDING.load(Ordering::Acquire) {
        std::thread::sleep(TICK);
    }
}

/// Returns the flag by which a signal ends the trace, and the number of the signal that the driver must forward to the
/// command (0 for none). With a command, Ctrl-C leaves this number at 0, because the terminal itself sends Ctrl-C to
/// the command. Fails if a handler or the thread cannot be installed.
pub fn on_signals(
    target: &RequestTarget,
    notes: NotesTo,
) -> io::Result<(Arc<AtomicBool>, Arc<AtomicUsize>)> {
    let (stop, hand_on) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let is_wanted = |signal: &i32| !is_ignored(*signal);
    if let (true, NotesTo::Stderr) = (is_ignored(SIGINT), notes) {
        let line = LiveNotes::default().line(&ProcessNote::SigintIgnored.into());
        line.iter().for_each(terminal::say);
    }
    let signals: Vec<i32> = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(is_wanted)
        .collect();
    let wakes = wake_by_signals()?;
    let is_command = matches!(target, RequestTarget::Command(_));
    for &signal in &signals {
        if !is_command {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        }
        if !is_command || signal != SIGINT {
            flag::register_usize(signal, Arc::clone(&hand_on), signal as usize)?;
        }
        flag::register(signal, Arc::clone(&stop))?;
        // The pipe must be last, because the flags must be set when the pipe wakes the driver's thread.
        pipe::register(signal, wakes.try_clone()?)?;
    }
    // With a handler, a write beyond `ulimit -f` returns an error; otherwise the signal would kill tiptoe in the
    // middle of an attach.
    flag::register(SIGXFSZ, Arc::default())?;
    let signals = Signals::new(signals)?;
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread.spawn(move || end_if_stuck(signals, notes))?;
    Ok((stop, hand_on))
}

/// Returns the note (a sentence of the report) on an ignored SIGINT if notes go only into the report. Otherwise
/// [`on_signals`] printed the note.
pub fn unsaid(notes: NotesTo) -> Option<Note> {
    let is_unsaid = notes == NotesTo::Report && is_ignored(SIGINT);
    is_unsaid.then_some(ProcessNote::SigintIgnored.into())
}

/// Returns whether tiptoe was started with this signal ignored, as by `nohup` or in a script's background jobs. Such
/// a signal must stay ignored, in tiptoe and in its command.
fn is_ignored(signal: i32) -> bool {
    let status = Process::current().status();
    status.is_ok_and(|status| status.sig_ign.contains(signal))
}

/// Ends tiptoe if a phase lasts too long ([`patience`]), and draws the status line.
fn end_if_stuck(mut signals: Signals, notes: NotesTo) {
    let mut received: [Option<(Instant, i32)>; 2] = [None; 2];
    loop {
        for signal in signals.pending() {
            received[usize::from(received[0].is_some())] = Some((Instant::now(), signal));
            line::end_without_waiting();
        }
        status::draw_if_due();
        let phase = Phase::now();
        for (received, patience) in received.into_iter().zip(patience(phase)) {
            // During the report, Ctrl-C may be meant for the command. So Ctrl-C ends tiptoe only if no command
            // runs.
            if let (Some((at, signal)), Some(patience)) = (received, patience)
                && at.elapsed() > patience
                && (signal != SIGINT || phase != Phase::Ending || has_no_command())
            {
                end(signal, notes);
            }
        }
        // While tiptoe waits for the command, a signal is meant for the command.
        if phase == Phase::Waiting {
            received[1] = None;
        }
        std::thread::sleep(TICK);
    }
}

/// Returns how long this phase may last after the first signal, and after the latest of the others; `None` means
/// for ever.
fn patience(phase: Phase) -> [Option<Duration>; 2] {
    match phase {
        Phase::Preparing => [Some(PREPARING), Some(Duration::ZERO)],
        Phase::Attaching => [Some(COUNTING), Some(Duration::ZERO)],
        Phase::Counting => [Some(COUNTING), None],
        Phase::Ending => [None, Some(ENDING)],
        Phase::Waiting => [None, None],
    }
}

fn end(signal: i32, notes: NotesTo) -> ! {
    // Release: pairs with the Acquire in `stay_if_ending`. A thread that sees the killed command must also see this
    // flag; otherwise it would report a failure.
    IS_ENDING.store(true, Ordering::Release);
    // With `-o` nothing is printed, because stderr belongs to the command.
    let is_due = Phase::now() == Phase::Preparing && notes == NotesTo::Stderr;
    if is_due && terminal::takes_a_line() {
        // `say` is not called, because it may wait for the terminal.
        terminal::write_raw(&format!("{}\n", Notice::NotBegun));
    }
    end_command(signal);
    process::exit(128 + signal)
}
