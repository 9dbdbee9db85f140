//! What one hit costs on this machine.
//!
//! # How
//! The same trampolines that targets get are put into a little program of our
//! own, and it is timed with and without them, in turns. A function in a hot loop
//! would flatter us several times over: two jumps and an increment are nearly free
//! there. What a hit costs in a real program is above all the detour, and that
//! depends on what is around it. So there are 256 functions, and three
//! surroundings:
//!
//! | surrounding | what it shows |
//! |---|---|
//! | long functions with branches | the detour where code and branch targets are short of cache: most like a real program |
//! | computing only | the detour where nothing else is slow |
//! | random memory traffic | the detour hidden behind loads |
//!
//! The first gives the estimate; the interval holds all three, and a margin for how
//! far real programs were found outside of them.
//!
//! | cost | measured in | with |
//! |---|---|---|
//! | count, filtered | this thread, generated functions in private memory | the real planner and trampolines |
//! | trap | a forked child | `int3`, and a handler that moves the thread on |
//! | kernel | a forked child | uprobes on three functions of this very program |
//!
//! # Invariants
//! - Nothing outside this thread is touched: no signal handler, no code of ours
//!   that others run, no descriptor that stays.
//! - What cannot be measured here (no executable memory, no permission) gets a
//!   default with a wide interval, never an error: a trace is not lost for its price.
//! - Every interval holds its estimate, and no unit cost is below [`FLOOR_NS`].

mod child;
mod code;
mod functions;
mod in_process;
mod program;
mod trap;
mod uprobe;

use tiptoe_event::Cost;

use crate::clock;

/// No hit is cheaper than this: a store and two jumps are never quite free.
pub const FLOOR_NS: f64 = 0.05;

/// Real programs may be as much cheaper than the cheapest surrounding,
const CHEAPER: f64 = 0.7;
/// and as much dearer than the dearest.
const DEARER: f64 = 1.5;

/// What a hit costs beyond the unit cost where so many distinct sites are hot:
/// branch targets and code no longer fit the caches.
const SITES: [(f64, f64); 5] = [
    (256.0, 0.0),
    (1024.0, 0.2),
    (2048.0, 0.8),
    (3072.0, 3.8),
    (4096.0, 7.7),
];

/// Costs to measure besides a counting hit's, as they take longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// A hit where only a breakpoint fits.
    pub trap: bool,
    /// A hit of a kernel uprobe.
    pub kernel: bool,
}

/// Nanoseconds that one hit adds to the program, by what happens at it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitCosts {
    /// A jump to a trampoline that counts.
    pub count: Cost,
    /// A hit that the filter rejects.
    pub filtered: Cost,
    /// A jump to a trampoline that counts the call and, through a thunk, its return.
    pub followed: Cost,
    /// The same, with the time of both read and entered in a histogram.
    pub timed: Cost,
    /// A breakpoint whose handler moves the thread to its trampoline.
    pub trap: Cost,
    /// A kernel uprobe: the estimate where `push` stands at the probe, the lower end
    /// where a `nop` does, the upper end where the kernel has to single-step.
    pub kernel: Cost,
}

impl UnitCosts {
    /// What was found elsewhere, for what cannot be measured here.
    const DEFAULT: UnitCosts = UnitCosts {
        count: cost(0.2, 0.7, 1.5),
        filtered: cost(0.2, 0.7, 2.0),
        followed: cost(0.8, 3.0, 8.0),
        timed: cost(18.0, 35.0, 60.0),
        trap: cost(600.0, 1_200.0, 3_000.0),
        kernel: cost(230.0, 500.0, 20_000.0),
    };

    /// Nanoseconds to add to each hit of a trampoline where `hot_sites` distinct sites
    /// make 99% of all hits; from a table that ends at 4,096 sites.
    pub fn extra_for_sites(hot_sites: usize) -> f64 {
        let sites = hot_sites as f64;
        let above = SITES.iter().position(|&(s, _)| sites <= s);
        match above {
            Some(0) => 0.0,
            None => SITES[SITES.len() - 1].1,
            Some(i) => {
                let ((s0, c0), (s1, c1)) = (SITES[i - 1], SITES[i]);
                c0 + (c1 - c0) * (sites - s0) / (s1 - s0)
            }
        }
    }
}

const fn cost(low_ns: f64, ns: f64, high_ns: f64) -> Cost {
    Cost {
        ns,
        low_ns,
        high_ns,
    }
}

/// Measures the cost of a hit here and now. About 100 ms, and tens of ms more for
/// each kind wanted.
pub fn unit_costs(want: Want) -> UnitCosts {
    let mut costs = UnitCosts::DEFAULT;
    if let Ok(measured) = in_process::measure() {
        let [count, filtered] = [measured.count, measured.filtered];
        costs.count = spread(count[0], &count[1..]);
        costs.filtered = spread(filtered[0], &filtered[1..]);
        costs.followed = followed(costs.count);
    }
    costs.timed = timed(costs.followed, clock::reading_ns());
    if want.trap
        && let Ok(ns) = trap::measure()
    {
        costs.trap = spread(ns, &[]);
    }
    if want.kernel
        && let Ok(steps) = uprobe::measure()
    {
        costs.kernel = Cost::between(steps.nop * CHEAPER, steps.push, steps.single_step * DEARER);
    }
    costs
}

/// Two detours more, by call and by return, and a frame that is pushed and popped:
/// 2.8 ns beside a count's 0.6 in a hot loop, 6.6 beside 2.5 over 256 functions.
fn followed(count: Cost) -> Cost {
    Cost::between(count.low_ns * 2.0, count.ns * 2.7, count.high_ns * 4.5)
}

/// What two readings of the clock cost, and the histogram: 8 ns in a hot loop.
fn timed(followed: Cost, reading_ns: f64) -> Cost {
    let [low, ns, high] = [4.0, 8.0, 16.0].map(|histogram| 2.0 * reading_ns + histogram);
    followed.plus(Cost::between(low * CHEAPER, ns, high * DEARER))
}

/// The cost in the surrounding that is most like a real program, with an interval
/// that holds the others and what real programs were found to deviate.
fn spread(typical: f64, others: &[f64]) -> Cost {
    let least = others.iter().fold(typical, |least, &ns| least.min(ns));
    let most = others.iter().fold(typical, |most, &ns| most.max(ns));
    let [low, ns, high] = [least * CHEAPER, typical, most * DEARER].map(|ns| ns.max(FLOOR_NS));
    Cost::between(low, ns, high)
}

/// The middle one of several measurements.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
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
        let all = Want {
            trap: true,
            kernel: true,
        };
        for want in [Want::default(), all] {
            let costs = unit_costs(want);
            println!("{costs:#?}");
            for cost in [costs.count, costs.filtered, costs.trap, costs.kernel] {
                sound(cost);
            }
        }
    }

    #[test]
    fn a_spread_holds_all_surroundings() {
        for all in [&[0.9, 0.2, 0.5][..], &[1.0], &[-0.3, 0.0], &[0.0, 5.0, 1.0]] {
            let cost = spread(all[0], &all[1..]);
            sound(cost);
            let held = |ns: f64| cost.low_ns <= ns.max(FLOOR_NS) && ns <= cost.high_ns;
            assert!(all.iter().all(|&ns| held(ns)), "{all:?}: {cost:?}");
        }
    }

    #[test]
    fn many_sites_cost_more_by_the_table() {
        let check = |sites, want: f64| {
            let got = UnitCosts::extra_for_sites(sites);
            assert!((got - want).abs() < 1e-9, "{sites}: {got}");
        };
        check(0, 0.0);
        check(256, 0.0);
        check(640, 0.1);
        check(1024, 0.2);
        check(2560, 2.3);
        check(4096, 7.7);
        check(1_000_000, 7.7);
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![9.0, -1.0, 2.0]), 2.0);
    }
}
