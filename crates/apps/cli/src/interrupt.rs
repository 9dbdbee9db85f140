//! Signals that ask tiptoe to end: Ctrl-C, SIGTERM and SIGHUP.
//!
//! A signal ends the trace, not tiptoe: the driver's loop sees a flag, detaches and reports. Where the driver does not
//! come to its loop, because it reads files that a target made without end, or comes no more to its end after the
//! trace, a thread ends tiptoe. Then its agents restore their targets by themselves.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use tiptoe_collector::{Phase, RequestTarget, end_command, has_no_command};
use tiptoe_sys::host::Process;

use crate::failure::Failure;

/// The thread's stack, which counts against `ulimit -d`.
const STACK: usize = 64 << 10;
/// How often the thread looks.
const TICK: Duration = Duration::from_millis(20);
/// How long what comes before the trace may go on after a signal: an attach that is nearly done. With a tick it is less
/// than 200 ms, as `tiptoe bench interrupt` measures.
const PREPARING: Duration = Duration::from_millis(160);
/// How long the loop may take to see the flag: it may be reading a library that was just loaded.
const COUNTING: Duration = Duration::from_secs(2);
/// How long the report of a command may take after a second signal, which may have been the command's.
const ENDING: Duration = Duration::from_secs(5);

/// Set when a signal ends tiptoe, before its command is killed.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Does not return if a signal ends tiptoe now: what failed then failed because of that, and is no failure to report.
pub fn stay_if_ending() {
    // Acquire: pairs with the Release in `end`.
    while IS_ENDING.load(Ordering::Acquire) {
        std::thread::sleep(TICK);
    }
}

/// Ctrl-C, SIGTERM and SIGHUP end the trace, not tiptoe. With `-p`, a second one ends
/// tiptoe too. A command gets Ctrl-C itself, and decides how many it takes; the others
/// are handed on to it.
pub fn on_signals(target: &RequestTarget) -> Result<(Arc<AtomicBool>, Arc<AtomicUsize>), Failure> {
    let (stop, hand_on) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let failed = |error| Failure::new(format!("signals cannot be handled: {error}"));
    let is_wanted = |signal: &i32| !is_ignored(*signal);
    let signals: Vec<i32> = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(is_wanted)
        .collect();
    for signal in &signals {
        match target {
            RequestTarget::Pids(_) => {
                let status = 128 + signal;
                flag::register_conditional_shutdown(*signal, status, Arc::clone(&stop))
                    .map_err(failed)?;
            }
            RequestTarget::Command(_) if *signal != SIGINT => {
                flag::register_usize(*signal, Arc::clone(&hand_on), *signal as usize)
                    .map_err(failed)?;
            }
            RequestTarget::Command(_) => {}
        }
        flag::register(*signal, Arc::clone(&stop)).map_err(failed)?;
    }
    // A file that grows beyond `ulimit -f` is then an error, not our death amid an attach.
    flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let signals = Signals::new(signals).map_err(failed)?;
    let thread = std::thread::Builder::new().stack_size(STACK);
    thread
        .spawn(move || end_what_does_not(signals))
        .map_err(failed)?;
    Ok((stop, hand_on))
}

/// Whoever started tiptoe had it ignore this signal: so it stays, for a command too.
fn is_ignored(signal: i32) -> bool {
    let status = Process::current().status();
    status.is_ok_and(|status| status.sig_ign.contains(signal))
}

fn end_what_does_not(mut signals: Signals) {
    // The first signal, and the last one after it.
    let mut asked: [Option<(Instant, i32)>; 2] = [None; 2];
    loop {
        for signal in signals.pending() {
            asked[usize::from(asked[0].is_some())] = Some((Instant::now(), signal));
        }
        let phase = Phase::now();
        for (asked, patience) in asked.into_iter().zip(patience(phase)) {
            if let (Some((at, signal)), Some(patience)) = (asked, patience)
                && at.elapsed() > patience
                && (signal != SIGINT || phase != Phase::Ending || has_no_command())
            {
                end(signal);
            }
        }
        // What comes now is the command's.
        if phase == Phase::Waiting {
            asked[1] = None;
        }
        std::thread::sleep(TICK);
    }
}

/// How long after the first signal, and after the last one, tiptoe may be in this phase.
fn patience(phase: Phase) -> [Option<Duration>; 2] {
    match phase {
        Phase::Preparing => [Some(PREPARING), Some(Duration::ZERO)],
        Phase::Counting => [Some(COUNTING), None],
        Phase::Ending => [None, Some(ENDING)],
        Phase::Waiting => [None, None],
    }
}

fn end(signal: i32) -> ! {
    // Release: a thread that sees the command killed must see this, too (pairs with the Acquire in `stay_if_ending`).
    IS_ENDING.store(true, Ordering::Release);
    end_command(signal);
    process::exit(128 + signal)
}
