//! What a wait for a lock and a wake cost, as they are noted.
//!
//! The engine that runs in targets is run here, over words of our own: one lock over and over, and as
//! many as a thread has room for. That is all but the way in and out, which overlaps with the
//! system call.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use tiptoe_event::Cost;
use tiptoe_futex::calls::{Call, Thread};
use tiptoe_futex::walk::{Caller, Frames};
use tiptoe_wire::Words;
use tiptoe_wire::futex::WIDTH;

use crate::clock;

const TURNS: u64 = 20_000;
const WAIT: u32 = 0x80;
const WAKE: u32 = 0x81;
/// How much dearer it may be among the program's own cache misses.
const COLD: f64 = 2.0;

/// Nanoseconds that a wait takes more, and a wake.
pub fn wait_and_wake() -> [Cost; 2] {
    let words = || -> Vec<AtomicU64> { (0..WIDTH).map(|_| AtomicU64::new(0)).collect() };
    let (own, shared) = (words(), words());
    let thread = Thread::new(Words::new(&own), Words::new(&shared));
    let frames = Frames::new(Words::new(&shared));
    let each = |locks: u64, operation| {
        let begun = Instant::now();
        for turn in 0..TURNS {
            let address = 0x1000 + 64 * (turn % locks);
            call(&thread, &frames, address, operation);
        }
        begun.elapsed().as_nanos() as f64 / TURNS as f64
    };
    [WAIT, WAKE].map(|operation| {
        let _warm = each(1, operation);
        let (one, many) = (each(1, operation), each(200, operation));
        let [low, high] = [one.min(many), one.max(many)];
        Cost::between(low, (low + high) / 2.0, COLD * high)
    })
}

fn call(thread: &Thread, frames: &Frames, address: u64, operation: u32) {
    let caller: Caller = frames.caller(black_box(0x7000), |at| at);
    thread.begins(&Call {
        address,
        operation,
        sp: 0x7000,
        caller,
        at: 0,
        now: clock::ticks(),
        timed: true,
    });
    if operation == WAIT {
        thread.ends(0x7000, -11, clock::ticks(), |ticks| ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_their_estimates() {
        for cost in wait_and_wake() {
            assert!(0.0 < cost.low_ns && cost.low_ns <= cost.ns, "{cost:?}");
            assert!(cost.ns <= cost.high_ns, "{cost:?}");
        }
    }
}
