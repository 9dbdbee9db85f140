//! Signals that ask tiptoe to end: Ctrl-C, SIGTERM and SIGHUP.
//!
//! A signal ends the trace, not tiptoe: it sets a flag, and the driver's loop then detaches and reports. But the driver
//! may hang before or after the loop, because reading a target's file may never end. So a thread ends tiptoe if a phase
//! takes too long after a signal. The agents then restore their targets by themselves.
//!
//! | phase | time from the first signal until tiptoe ends | from the last of several |
//! |---|---|---|
//! | preparing | [`PREPARING`] | at once |
//! | attaching | [`COUNTING`] | at once |
//! | counting | [`COUNTING`] | - |
//! | ending | - | [`ENDING`] |
//! | waiting for the command | - | - |
//!
//! With `-p`, a second signal ends tiptoe at once, in every phase.

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

use crate::failure::Failure;
use crate::notice::Notice;
use crate::output::NotesTo;
use crate::status;
use crate::terminal;

/// The thread's stack size. It is small because it counts against `ulimit -d`.
const STACK: usize = 64 << 10;
/// The time between two checks of the thread.
const TICK: Duration = Duration::from_millis(20);
/// How long preparing may continue after a signal, so that an attach that is nearly done can complete. Together with a
/// tick, tiptoe ends in less than 200 ms, as `tiptoe-dev bench interrupt` measures.
const PREPARING: Duration = Duration::from_millis(160);
/// How long the driver's loop may take to see the flag, because it may be reading a library that was just loaded.
const COUNTING: Duration = Duration::from_secs(2);
/// How long the report may take after a second signal if there is a command. It is long because the signal may have
/// been meant for the command.
const ENDING: Duration = Duration::from_secs(5);

/// Set when a signal ends tiptoe, before its command is killed.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Waits for the end of the process if a signal is ending tiptoe; otherwise returns at once. A thread must call this
/// before it reports a failure, because ending tiptoe kills the command, and that makes the driver fail.
pub fn stay_if_ending() {
    // Acquire: pairs with the Release in `end`.
    while IS_ENDING.load(Ordering::Acquire) {
        std::thread::sleep(TICK);
    }
}

/// Handles Ctrl-C, SIGTERM and SIGHUP. Returns the flag that ends the trace, and a signal (0 for none). With a command,
/// it is the signal that the driver must forward to the command; it is never Ctrl-C, which the terminal itself sends to
/// the command. With `-p`, it is the signal that set the flag, and a second signal ends tiptoe. Fails if a handler or
/// the thread cannot be installed.
pub fn on_signals(
    target: &RequestTarget,
    notes: NotesTo,
) -> Result<(Arc<AtomicBool>, Arc<AtomicUsize>), Failure> {
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
    let wakes = wake_by_signals().map_err(Failure::NoSignals)?;
    for signal in &signals {
        match target {
            RequestTarget::Pids(_) | RequestTarget::System => {
                let status = 128 + signal;
                flag::register_conditional_shutdown(*signal, status, Arc::clone(&stop))
                    .map_err(Failure::NoSignals)?;
                flag::register_usize(*signal, Arc::clone(&hand_on), *signal as usize)
                    .map_err(Failure::NoSignals)?;
            }
            RequestTarget::Command(_) if *signal != SIGINT => {
                flag::register_usize(*signal, Arc::clone(&hand_on), *signal as usize)
                    .map_err(Failure::NoSignals)?;
            }
            RequestTarget::Command(_) => {}
        }
        flag::register(*signal, Arc::clone(&stop)).map_err(Failure::NoSignals)?;
        // Must be registered last, because the flags must be set when the pipe wakes the driver's thread.
        let writer = wakes.try_clone().map_err(Failure::NoSignals)?;
        pipe::register(*signal, writer).map_err(Failure::NoSignals)?;
    }
    // With a handler, a write beyond `ulimit -f` returns an error. Without one, the signal would kill tiptoe in the
    // middle of an attach.
    flag::register(SIGXFSZ, Arc::default()).map_err(Failure::NoSignals)?;
    let signals = Signals::new(signals).map_err(Failure::NoSignals)?;
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread
        .spawn(move || end_if_stuck(signals, notes))
        .map_err(Failure::NoSignals)?;
    Ok((stop, hand_on))
}

/// Returns the note that [`on_signals`] did not print, because it belongs in the report.
pub fn unsaid(notes: NotesTo) -> Option<Note> {
    let is_unsaid = notes == NotesTo::Report && is_ignored(SIGINT);
    is_unsaid.then_some(ProcessNote::SigintIgnored.into())
}

/// Returns whether tiptoe was started with this signal ignored, as by `nohup` or in background jobs of a shell's script.
/// The signal must stay ignored, for the command too.
fn is_ignored(signal: i32) -> bool {
    let status = Process::current().status();
    status.is_ok_and(|status| status.sig_ign.contains(signal))
}

/// Ends tiptoe if it stays too long in a phase after a signal. Also draws the status line, because the driver's thread
/// may be busy for seconds.
fn end_if_stuck(mut signals: Signals, notes: NotesTo) {
    // When the first signal arrived, and the last of those after it.
    let mut received: [Option<(Instant, i32)>; 2] = [None; 2];
    loop {
        for signal in signals.pending() {
            received[usize::from(received[0].is_some())] = Some((Instant::now(), signal));
            status::end_without_waiting();
        }
        status::draw_if_due();
        let phase = Phase::now();
        for (received, patience) in received.into_iter().zip(patience(phase)) {
            // Ctrl-C during the report may be meant for the command, so it ends tiptoe only if the command has exited.
            if let (Some((at, signal)), Some(patience)) = (received, patience)
                && at.elapsed() > patience
                && (signal != SIGINT || phase != Phase::Ending || has_no_command())
            {
                end(signal, notes);
            }
        }
        // A signal that arrives while tiptoe waits for the command is meant for the command.
        if phase == Phase::Waiting {
            received[1] = None;
        }
        std::thread::sleep(TICK);
    }
}

/// Returns how long tiptoe may stay in this phase after the first signal, and after the last one; `None` for ever.
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
    // Release: pairs with the Acquire in `stay_if_ending`. A thread that sees the command killed must see this flag,
    // because otherwise it reports a failure.
    IS_ENDING.store(true, Ordering::Release);
    // With `-o` nothing is printed: stderr belongs to the command, and the report that could contain the note is not
    // written.
    let is_due = Phase::now() == Phase::Preparing && notes == NotesTo::Stderr;
    if is_due && terminal::takes_a_line() {
        // `say` must not be used here, because it may wait for the terminal.
        terminal::write_raw(&format!("{}\n", Notice::NotBegun));
    }
    end_command(signal);
    process::exit(128 + signal)
}
