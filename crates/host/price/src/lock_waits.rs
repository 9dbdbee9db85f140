//! Measures how long tiptoe's library in a target (the agent) takes to record a wait for a lock, or a wake. The
//! agent's code runs here, on memory of our own. The cheap case is one lock, whose waits return at once; the
//! expensive case is 200 locks, whose waits slept. The call into the agent is not included, because it overlaps with
//! the system call.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use tiptoe_event::Cost;
use tiptoe_futex::calls::{Call, Thread};
use tiptoe_futex::owner::OwnedLock;
use tiptoe_futex::paths::Paths;
use tiptoe_futex::walk::{Frames, Library, RuntimePart};
use tiptoe_stack::{Base, Frame, Rule, encode_row};
use tiptoe_wire::Words;
use tiptoe_wire::futex::{WIDTH, head};

use super::cache::PriceCache;
use super::price::{self, Price};
use super::{each_turn, one_to_many};
use crate::clock;

const WAIT: u32 = 0x80;
const WAKE: u32 = 0x81;
const AT_ONCE: i64 = -11;
const HOLDER: u32 = 4242;
/// The library between the futex call and the user's code.
const LIBC: Library = Library {
    base: 0x1000,
    start: 0x1000,
    end: 0x2000,
    part: RuntimePart::Libc,
};

/// The costs that recording adds to futex calls.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// A wait.
    pub wait: Cost,
    /// A wait that sampling skips.
    pub passed_over: Cost,
    /// A wake.
    pub wake: Cost,
}

impl Price for Calls {
    const KIND: &'static str = "waits";

    fn numbers(&self) -> Vec<f64> {
        price::numbers_of([self.wait, self.passed_over, self.wake])
    }

    fn of_numbers(numbers: &[f64]) -> Option<Calls> {
        let [wait, passed_over, wake] = price::costs(numbers)?;
        Some(Calls {
            wait,
            passed_over,
            wake,
        })
    }
}

/// Returns the costs, cached or measured.
pub fn futex_calls(prices: &PriceCache) -> Calls {
    prices.take(|| Some(measure())).unwrap_or_else(measure)
}

fn measure() -> Calls {
    let words = || -> Vec<AtomicU64> { (0..WIDTH).map(|_| AtomicU64::new(0)).collect() };
    let (own, shared) = (words(), words());
    let [own, shared] = [&own, &shared].map(|words| Words::new(words));
    let noted = CallRecorder {
        thread: Thread::new(own, shared),
        frames: Frames::new(shared),
        paths: Paths::new(own),
    };
    let added = noted.frames.add(&LIBC, &[encode_row(0, rule())]);
    debug_assert!(added, "it is the only one");
    let cost = |operation| {
        let each = |locks: u64| {
            let result = if locks == 1 { AT_ONCE } else { 0 };
            each_turn(|turn| noted.call(0x1000 + 64 * (turn % locks), operation, result))
        };
        one_to_many(each, 200)
    };
    let [wait, wake] = [WAIT, WAKE].map(cost);
    own.store(head::NEXT as usize, u64::MAX);
    let passed_over = cost(WAIT);
    Calls {
        wait,
        passed_over,
        wake,
    }
}

fn rule() -> Rule {
    Rule::new(Base::Sp, 16, None).unwrap_or(Rule::UNKNOWN)
}

struct CallRecorder<'a> {
    thread: Thread<'a>,
    frames: Frames<'a>,
    paths: Paths<'a>,
}

impl CallRecorder<'_> {
    fn call(&self, address: u64, operation: u32, result: i64) {
        let (sp, pc, bp) = (black_box(0x7000), 0, 0);
        let returns_to = |at| if at == 0x7008 { LIBC.start + 8 } else { at };
        let frame = Frame { pc, sp, bp };
        let caller = self.frames.caller(&self.paths, rule(), frame, returns_to);
        let call = Call {
            address,
            operation,
            sp,
            caller,
            at: 0,
            is_timed: true,
        };
        // A lock's holder is recorded only for a wait that slept.
        let lock = || (result == 0).then_some(OwnedLock::Mutex);
        self.thread.begins(&call, lock, clock::ticks, |_| HOLDER);
        if operation == WAIT {
            self.thread
                .ends(sp, result, clock::ticks, |ticks| ticks, |_| 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_their_estimates() {
        let Calls {
            wait,
            passed_over,
            wake,
        } = measure();
        for cost in [wait, passed_over, wake] {
            assert!(0.0 < cost.low_ns && cost.low_ns <= cost.ns, "{cost:?}");
            assert!(cost.ns <= cost.high_ns, "{cost:?}");
        }
    }
}
