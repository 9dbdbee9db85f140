//! Births of threads wait while breakpoints are opened: a thread that is born while those of its parent are opened, one
//! after the other, would have some of them.
//!
//! Who makes a thread by libc comes to [`before`], in front of the call, and waits there. Calls that were made before
//! have to be over: nobody tells when, so the threads are looked at until no new one has come for a while. A call that
//! takes longer all the same, or is none of libc's, is found by the threads that come of it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use tiptoe_sys::raw::{futex, sleep_ns};

use crate::shared::{self, Shared};
use crate::tasks;

/// Not 0 while births wait.
static HELD: AtomicU32 = AtomicU32::new(0);
/// A birth waits so long at most, in so many pieces.
const PIECES: u32 = 25;
const PIECE_NS: u64 = 10_000_000;
/// Threads are looked at so often, and so many times in a row there must be no new one: 10 ms.
const LOOK_NS: u64 = 2_000_000;
const LOOKS: u32 = 5;
const MOST_LOOKS: u32 = 50;

/// While it lives no thread is born.
pub struct Held;

impl Held {
    /// Waits until births that are under way are over, where any can be.
    pub fn new(shared: &Shared) -> Held {
        // SeqCst: in front of the looks, so that whoever does not see it is among those that are looked for.
        HELD.store(1, SeqCst);
        // A program that is held before it begins has one thread, which waits for us.
        if shared.go.load(Relaxed) != 0 || !is_alone() {
            settle();
        }
        Held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.store(0, SeqCst);
        futex::wake(&HELD, u32::MAX);
    }
}

/// None wait: a session begins.
pub fn begin() {
    HELD.store(0, SeqCst);
}

/// Runs in front of a call that makes a thread.
pub fn before() {
    for _ in 0..PIECES {
        // A fork's child has what stood here at that moment, and nobody to change it.
        if HELD.load(SeqCst) == 0 || shared::at_home().is_none() {
            return;
        }
        let _ = futex::wait(&HELD, 1, Some(PIECE_NS));
    }
}

/// Whether the program has one thread, besides the agent's.
pub(super) fn is_alone() -> bool {
    let mut threads = 0;
    tasks::each(|_| threads += 1);
    threads <= 2
}

/// Waits until no new thread has come for a while.
pub(super) fn settle() {
    let (mut newest, mut quiet) = (0, 0);
    for _ in 0..MOST_LOOKS {
        let mut sum = 0u64;
        let mut count = 0u64;
        tasks::each(|tid| {
            sum = sum.wrapping_add(u64::from(tid).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            count += 1;
        });
        let now = sum ^ count;
        quiet = if now == newest { quiet + 1 } else { 0 };
        newest = now;
        if quiet == LOOKS {
            return;
        }
        sleep_ns(LOOK_NS);
    }
}
