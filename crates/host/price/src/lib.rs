//! Measures what one hit of a probe costs on this machine, and what tiptoe itself uses.
//!
//! # How
//! tiptoe generates a small program, and times it in turns with and without the trampolines (code that counts) that
//! targets get. A trampoline is nearly free in a hot loop, but not if a thousand functions run between its hits. So
//! loops over 1 to 1,024 functions are timed. The result is a [`Curve`]: the cost by the time between hits.
//!
//! Traps (a breakpoint and a signal handler), and kernel uprobes for each [`Step`], are timed in a forked child.
//!
//! # Invariants
//! - A measurement must change nothing outside its thread: no signal handler, no code of other threads, no open
//!   descriptor.
//! - A cost that cannot be measured gets a default with a wide interval, because a failed measurement must not stop a
//!   trace.
//! - Every interval contains its estimate. A hit costs at least [`FLOOR_NS`], and at most the time between hits.

#![warn(missing_docs)]

mod cache;
mod child;
pub mod clock;
mod code;
mod curve;
mod functions;
mod in_process;
mod lock_waits;
pub mod own;
mod price;
mod program;
mod scope_visits;
#[cfg(test)]
#[path = "../../../../tests/support/skipped.rs"]
mod skipped;
mod trap;
mod uprobe;

use std::array::from_fn;
use std::time::Instant;

use tiptoe_event::Cost;
use tiptoe_kernel::Step;

pub use cache::PriceCache;
pub use child::Child;
use curve::Point;
pub use curve::{Curve, FLOOR_NS};
use functions::LOOPS;
use in_process::InProcess;
pub use lock_waits::{Calls as FutexCosts, futex_calls};
use program::Version;
pub use scope_visits::scope_visit;
use trap::Trap;
use uprobe::Steps;

/// The ends of an interval, as multiples of the measured cost.
const CHEAPER: f64 = 0.7;
const DEARER: f64 = 1.5;

/// The costs to measure, besides that of a counted hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostRequest {
    /// A hit of a trap, used if no jump fits.
    pub trap: bool,
    /// A hit of a kernel uprobe.
    pub kernel: bool,
}

/// The time that a hit adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitCosts {
    /// A jump to a trampoline that counts.
    pub count: Curve,
    /// A hit that the filter rejects.
    pub filtered: Curve,
    /// One reading of the clock.
    pub reading_ns: f64,
    /// A breakpoint instruction with a signal handler.
    pub trap: Cost,
    /// A kernel uprobe.
    pub kernel: KernelCosts,
}

/// A kernel uprobe's cost, by how the kernel executes the probed instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelCosts {
    nop: Cost,
    emulated: Cost,
    single: Cost,
}

impl KernelCosts {
    /// Returns the cost at an instruction of this kind.
    pub fn of(&self, step: Step) -> Cost {
        match step {
            Step::Nop => self.nop,
            Step::Emulated => self.emulated,
            Step::Single => self.single,
        }
    }
}

impl UnitCosts {
    /// Costs from other machines, for failed measurements.
    pub const DEFAULT: UnitCosts = UnitCosts {
        count: Curve::elsewhere([0.6, 0.8, 0.8, 2.6, 12.0]),
        filtered: Curve::elsewhere([1.0, 1.1, 1.1, 4.0, 12.5]),
        reading_ns: 12.0,
        trap: cost(600.0, 1_200.0, 5_000.0),
        kernel: KernelCosts {
            nop: cost(150.0, 300.0, 1_000.0),
            emulated: cost(300.0, 600.0, 1_500.0),
            single: cost(1_000.0, 4_500.0, 25_000.0),
        },
    };
}

const fn cost(low_ns: f64, ns: f64, high_ns: f64) -> Cost {
    Cost {
        ns,
        low_ns,
        high_ns,
    }
}

/// Returns a hit's costs, cached or measured in about 100 ms, and tens of ms more for each requested kind.
pub fn unit_costs(want: CostRequest, prices: &PriceCache) -> UnitCosts {
    let mut costs = UnitCosts::DEFAULT;
    if let Some(shown) = prices.take(|| in_process::measure().ok()) {
        costs.count = curve(&shown, Version::Count);
        costs.filtered = curve(&shown, Version::Filtered);
    }
    costs.reading_ns = clock::reading_ns();
    if want.trap {
        costs.trap = trap_cost(prices).unwrap_or(costs.trap);
    }
    if want.kernel {
        costs.kernel = kernel_costs(prices);
    }
    costs
}

/// Returns a kernel uprobe's cost, cached or measured in tens of ms.
pub fn kernel_costs(prices: &PriceCache) -> KernelCosts {
    measured_kernel_costs(prices).unwrap_or(UnitCosts::DEFAULT.kernel)
}

fn trap_cost(prices: &PriceCache) -> Option<Cost> {
    let Trap(ns) = prices.take(|| trap::measure().ok())?;
    Some(about(ns))
}

fn measured_kernel_costs(prices: &PriceCache) -> Option<KernelCosts> {
    let Steps(ns) = prices.take(|| uprobe::measure().ok())?;
    let [nop, emulated, single] = ns.map(about);
    Some(KernelCosts {
        nop,
        emulated,
        single,
    })
}

/// The costs of the two ways to count a function without room for a jump.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrapAlternatives {
    /// A trap of tiptoe's library in the target.
    pub trap: Cost,
    /// The kernel's uprobe.
    pub kernel: KernelCosts,
}

impl TrapAlternatives {
    /// Returns both costs, cached or measured in tens of ms; `None` if that fails.
    pub fn fetch(prices: &PriceCache) -> Option<TrapAlternatives> {
        Some(TrapAlternatives {
            kernel: measured_kernel_costs(prices)?,
            trap: trap_cost(prices)?,
        })
    }

    /// Returns whether a uprobe is cheaper at an instruction of this kind.
    pub fn kernel_is_cheaper(&self, step: Step) -> bool {
        self.kernel.of(step).ns < self.trap.ns
    }
}

/// Returns the cost of a *followed* call, whose return is traced: a counted call, two more jumps to tiptoe's code,
/// and a pushed and popped frame. A followed call took 2.8 ns in a hot loop and 6.6 ns over 256 functions, a counted
/// call 0.6 and 2.5 ns.
pub fn followed(count: Cost) -> Cost {
    Cost::between(count.low_ns * 2.0, count.ns * 2.7, count.high_ns * 4.5)
}

/// Returns the cost of a timed call: a followed call and two readings of the clock, which partly overlap with the
/// call.
pub fn timed(followed: Cost, reading_ns: f64) -> Cost {
    let [low, ns, high] = [-6.0, -2.0, 8.0].map(|rest| (2.0 * reading_ns + rest).max(0.0));
    followed.plus(Cost::between(low * CHEAPER, ns, high * DEARER))
}

/// Returns the cost of a hit counted by an argument's value. In a hot loop it was 0.4 ns more than a counted hit, or
/// 5 ns more without room for the value.
pub fn valued(count: Cost) -> Cost {
    count.plus(Cost::between(0.3, 1.5, 12.0))
}

/// Returns the cost of a call of `--under`'s function (the *gate*): a followed call and two more atomic changes.
/// These took less than 1 ns in a hot loop.
pub fn gate(followed: Cost) -> Cost {
    followed.plus(Cost::between(0.5, 2.0, 15.0))
}

/// Returns the cost of a recorded hit: a counted hit, a reading of the clock, and the record, which took 5 ns in a
/// hot loop.
pub fn recorded(count: Cost, reading_ns: f64) -> Cost {
    let [low, ns, high] = [3.0, 5.0, 16.0].map(|written| reading_ns + written);
    count.plus(Cost::between(low * CHEAPER, ns, high * DEARER))
}

/// Returns the curve of what a version adds to the program's time. The gap between hits is a lap of the loop, which
/// calls each function once.
fn curve(shown: &InProcess, version: Version) -> Curve {
    let point = |surrounding: usize, index: usize| {
        let shown = &shown[index][surrounding];
        let added_ns = shown[version as usize];
        let call_ns = shown[Version::Plain as usize].max(FLOOR_NS) + added_ns.max(0.0);
        let gap_ns = call_ns * LOOPS[index] as f64;
        Point { gap_ns, added_ns }
    };
    Curve::new(from_fn(|surrounding| {
        from_fn(|index| point(surrounding, index))
    }))
}

/// Returns a measured cost, with the interval in which real programs' costs were.
fn about(ns: f64) -> Cost {
    let [low, ns, high] = [ns * CHEAPER, ns, ns * DEARER].map(|ns| ns.max(FLOOR_NS));
    Cost::between(low, ns, high)
}

/// Returns the cost between `each(1)` and `each(many)`, the ns of an operation with one and with many locks or
/// scopes. The upper end is doubled, because programs whose data fills the caches may need twice as long.
fn one_to_many(each: impl Fn(u64) -> f64, many: u64) -> Cost {
    let _warm = each(1);
    let (one, many) = (each(1), each(many));
    let [low, high] = [one.min(many), one.max(many)];
    Cost::between(low, (low + high) / 2.0, 2.0 * high)
}

/// Returns the ns of a call of `turn`: the median of blocks, because one interruption may take longer than all calls.
fn each_turn(mut turn: impl FnMut(u64)) -> f64 {
    const BLOCK: u64 = 400;
    const BLOCKS: u64 = 50;
    let mut block = |number: u64| {
        let first = number * BLOCK;
        let begun = Instant::now();
        (first..first + BLOCK).for_each(&mut turn);
        begun.elapsed().as_nanos() as f64 / BLOCK as f64
    };
    median((0..BLOCKS).map(&mut block).collect())
}

/// Returns the median, or the upper of two middle values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::functions::SURROUNDINGS;
    use super::*;

    fn sound(cost: Cost) {
        assert!(cost.high_ns.is_finite(), "{cost:?}");
        assert!(FLOOR_NS <= cost.low_ns, "{cost:?}");
        assert!(
            cost.low_ns <= cost.ns && cost.ns <= cost.high_ns,
            "{cost:?}"
        );
    }

    #[test]
    fn every_cost_is_finite_and_within_its_interval() {
        let all = CostRequest {
            trap: true,
            kernel: true,
        };
        for want in [CostRequest::default(), all] {
            let start = std::time::Instant::now();
            let costs = unit_costs(want, &PriceCache::none());
            println!("{costs:#.2?} after {:.0?}", start.elapsed());
            for gap in [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e9] {
                let [count, filtered] = [costs.count, costs.filtered].map(|curve| curve.at(gap));
                println!("every {gap} ns: {count:.2?}");
                sound(count);
                sound(filtered);
            }
            for step in [Step::Nop, Step::Emulated, Step::Single] {
                sound(costs.kernel.of(step));
            }
            sound(costs.trap);
        }
    }

    #[test]
    fn the_cheaper_of_a_trap_and_a_uprobe_depends_on_the_instruction() {
        let UnitCosts { trap, kernel, .. } = UnitCosts::DEFAULT;
        let costs = TrapAlternatives { trap, kernel };
        let cheaper = [Step::Nop, Step::Emulated, Step::Single];
        let cheaper = cheaper.map(|step| costs.kernel_is_cheaper(step));
        assert_eq!(cheaper, [true, true, false]);
    }

    #[test]
    fn the_gap_is_a_whole_lap_with_what_was_added() {
        let mut shown = InProcess::default();
        for (all, functions) in shown.iter_mut().zip(LOOPS) {
            *all = [[2.0, functions as f64 / 100.0, 0.0]; SURROUNDINGS.len()];
        }
        let curve = curve(&shown, Version::Count);
        let lap = LOOPS[3] as f64 * (2.0 + LOOPS[3] as f64 / 100.0);
        assert!((curve.at(lap).ns - LOOPS[3] as f64 / 100.0).abs() < 1e-9);
    }

    #[test]
    fn an_interruption_raised_the_price() {
        let interruption = std::time::Duration::from_millis(200);
        let mean_ns = interruption.as_nanos() as f64 / 20_000.0;
        let ns = each_turn(|turn| {
            if turn == 100 {
                std::thread::sleep(interruption);
            }
        });
        assert!(ns < mean_ns, "{ns}");
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![9.0, -1.0, 2.0]), 2.0);
    }
}
