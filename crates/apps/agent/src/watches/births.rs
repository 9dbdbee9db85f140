//! Delays the creation of threads while breakpoints are opened. Otherwise a thread created meanwhile would inherit only
//! some of its parent's events (breakpoints).
//!
//! Before a hooked clone, the thread waits in [`before`]. Nothing reports the end of creations that began earlier. So
//! the list of threads is read until it has not changed for a while. A thread whose creation took longer, or was not
//! hooked, is found later. Then all events are opened again.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use tiptoe_sys::raw::{futex, sleep_ns};

use crate::shared::{self, Shared};
use crate::tasks;

/// Nonzero while a [`CreationHold`] exists. [`begin`] clears the word, because an agent's thread that was killed may
/// have left it set.
static ON_HOLD: AtomicU32 = AtomicU32::new(0);
/// The longest wait of a creation, in pieces of [`PIECE_NS`].
const PIECES: u32 = 25;
const PIECE_NS: u64 = 10_000_000;
/// The interval of readings of the list of threads. [`LOOKS`] readings in a row must show no change: 10 ms.
const LOOK_NS: u64 = 2_000_000;
const LOOKS: u32 = 5;
const MOST_LOOKS: u32 = 50;

/// While this value exists, hooked clones wait, at most 250 ms.
pub struct CreationHold;

impl CreationHold {
    pub fn new(shared: &Shared) -> CreationHold {
        // SeqCst: orders the store before the readings of the list in `settle`. A thread whose load in `before` misses
        // the store creates its thread at once, so the readings find the new thread.
        ON_HOLD.store(1, SeqCst);
        // Before a command starts, its only thread waits for the agent, so no thread is being created.
        if shared.go.load(Relaxed) != 0 || !is_alone() {
            settle();
        }
        CreationHold
    }
}

impl Drop for CreationHold {
    fn drop(&mut self) {
        ON_HOLD.store(0, SeqCst);
        futex::wake(&ON_HOLD, u32::MAX);
    }
}

pub fn begin() {
    ON_HOLD.store(0, SeqCst);
}

pub fn before() {
    for _ in 0..PIECES {
        // A forked child has a copy of the word, which no thread there will clear.
        if ON_HOLD.load(SeqCst) == 0 || shared::at_home().is_none() {
            return;
        }
        let _ = futex::wait(&ON_HOLD, 1, Some(PIECE_NS));
    }
}

pub(super) fn is_alone() -> bool {
    tasks::count() <= 2
}

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
