//! Stops all threads of a program at once.
//!
//! A stop would cut short a transfer (a write to a full pipe). So a thread that sleeps in a transfer is stopped only
//! if it blocks the signal of a trap (a breakpoint byte). A trap would then kill the process. Other such threads will
//! hardly reach a half-written patch, because they would have to wake and get there within microseconds.
//!
//! While threads end, the kernel's list of threads may omit other threads. So the list is read until the threads
//! found (stopped, asleep in a transfer, or the thread of tiptoe's own code) are as many as the process has. Then no
//! thread runs that could create another thread.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::masks::Masks;
use super::poll_backoff::PollBackoff;
use super::process::{self, Process};
use super::restart;
use super::traced_thread::{StopFailure, StoppedThread};

/// An attempt is short, because a thread inside vfork cannot be stopped before its child calls exec, and the other
/// threads stay stopped meanwhile.
const TRY: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

pub(super) type ThreadAction<'a> =
    &'a (dyn Fn(&StoppedThread, &Process) -> Result<(), StopFailure> + Sync);
pub(super) type StopCheck<'a> = &'a (dyn Fn(&StoppedThread) -> Result<bool, StopFailure> + Sync);

/// Runs `each` on every thread, and then `act`, while all threads are stopped. If `may` returns `false` for a thread,
/// all threads continue and are stopped again. Returns `None`, without a call of `act`, if the threads do not stop in
/// time.
pub(super) fn run<R: Send>(
    masks: &Masks,
    may: StopCheck,
    each: ThreadAction,
    act: impl FnOnce() -> R + Send,
) -> Option<R> {
    let until = Instant::now() + PATIENCE;
    let mut act = Some(act);
    loop {
        if let Some(result) = attempt(masks, may, each, &mut act) {
            return Some(result);
        }
        if Instant::now() > until || Process::open(masks.pid, &masks.program).is_err() {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Makes one attempt, on a new thread of tiptoe, because the end of that thread detaches tiptoe from threads that do
/// not stop. The new thread also runs `act`, because a switch to another thread would lengthen the stop.
fn attempt<R: Send, F: FnOnce() -> R + Send>(
    masks: &Masks,
    may: StopCheck,
    each: ThreadAction,
    act: &mut Option<F>,
) -> Option<R> {
    let hold = || {
        let _held = stop_all(masks, may, each)?;
        act.take().map(|act| act())
    };
    std::thread::scope(|scope| {
        let result = scope.spawn(hold).join();
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn stop_all(masks: &Masks, may: StopCheck, each: ThreadAction) -> Option<Vec<StoppedThread>> {
    let until = Instant::now() + TRY;
    let process = Process::open(masks.pid, &masks.program).ok()?;
    let mut all = BTreeMap::new();
    // Threads that start or end need a CPU, so this thread yields.
    let mut looks = PollBackoff::new();
    while !stop_listed(&mut all, masks, until)? {
        if Instant::now() > until {
            return None;
        }
        looks.pause();
    }
    // The process may have called exec since its memory was opened. While its threads are stopped, it cannot call
    // exec.
    let one = all.keys().next();
    if one.is_some_and(|tid| process.is_left_by(*tid)) {
        return None;
    }
    for held in all.values() {
        match may(held) {
            Ok(true) | Err(StopFailure::Ended) => {}
            Ok(false) | Err(_) => return None,
        }
    }
    for held in all.values() {
        match each(held, &process) {
            Ok(()) | Err(StopFailure::Ended) => {}
            Err(_) => return None,
        }
    }
    Some(all.into_values().collect())
}

/// Stops the threads listed now. Returns whether no thread runs any more; `None` if a thread cannot be stopped.
fn stop_listed(
    threads: &mut BTreeMap<u32, StoppedThread>,
    masks: &Masks,
    until: Instant,
) -> Option<bool> {
    let tids = process::threads(masks.pid).ok()?;
    let new = tids
        .into_iter()
        .filter(|tid| !threads.contains_key(tid) && Some(*tid) != masks.spare);
    let is_asleep = |tid: &u32| {
        let line = process::syscall(masks.pid, *tid);
        restart::is_transfer(&line) && !masks.are_blocked(*tid)
    };
    let (asleep, running): (Vec<u32>, Vec<u32>) = new.partition(is_asleep);
    let mut stopping = Vec::new();
    for tid in running {
        match StoppedThread::begin(masks.pid, tid) {
            Ok(one) => stopping.push((tid, one)),
            Err(StopFailure::Ended) => {}
            Err(_) => return None,
        }
    }
    for (tid, one) in stopping {
        match one.wait(until) {
            Ok(held) => drop(threads.insert(tid, held)),
            Err(StopFailure::Ended) => {}
            Err(_) => return None,
        }
    }
    let known = threads.len() + asleep.len() + usize::from(masks.spare.is_some());
    let now = process::status(masks.pid, masks.pid).ok()?;
    Some(now.threads as usize == known)
}
