//! What the accounting of debug registers needs: their number, and a way to wait.

use std::sync::atomic::AtomicU64;

use tiptoe_breakpoint::Wait;
use tiptoe_sys::raw;

/// A processor's debug registers.
pub const REGISTERS: u32 = 4;

/// Spins for microseconds, then sleeps on a futex.
#[derive(Clone, Copy, Debug)]
pub struct Futex;

impl Wait for Futex {
    const LOOKS: u32 = 100;

    fn park(&self, word: &AtomicU64, seen: u64) {
        // After an error (the word changed, or a signal) the caller checks again.
        let _ = raw::futex::wait_low(word, seen as u32, None);
    }

    fn unpark(&self, word: &AtomicU64) {
        raw::futex::wake_low(word, 1);
    }

    fn now_ns(&self) -> u64 {
        raw::monotonic_ns()
    }
}
