//! Measures the cost of recording a wait for a lock, and a wake, by the agent's engine on memory of our own. Waits for
//! one lock return at once, those for 200 locks sleep; then sampling skips all waits. The call into the agent is not
//! included, because it overlaps with the system call.

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
use super::each_turn;
use super::price::{self, Price};
use crate::clock;

const WAIT: u32 = 0x80;
const WAKE: u32 = 0x81;
/// The result of a wait that returned at once.
const AT_ONCE: i64 = -11;
/// The thread that holds the locks.
const HOLDER: u32 = 4242;
/// The library between the futex call and the user's code.
const LIBC: Library = Library {
    base: 0x1000,
    start: 0x1000,
    end: 0x2000,
    part: RuntimePart::Libc,
};
/// The interval's factor for programs whose data fills the caches.
const COLD: f64 = 2.0;

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
    const COUNT: usize = 9;

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
    let each = |locks: u64, operation, result| {
        each_turn(|turn| noted.call(0x1000 + 64 * (turn % locks), operation, result))
    };
    let cost = |operation| {
        let _warm = each(1, operation, AT_ONCE);
        let (one, many) = (each(1, operation, AT_ONCE), each(200, operation, 0));
        let [low, high] = [one.min(many), one.max(many)];
        Cost::between(low, (low + high) / 2.0, COLD * high)
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
        // A holder is charged only for a sleep.
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
