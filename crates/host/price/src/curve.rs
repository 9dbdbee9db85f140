//! The cost of a hit (a counted call), by the *gap*, the time since the function's last hit. The more code ran in the
//! gap, the less of the trampoline (code that counts) is cached. A target's gap is estimated as its CPU time divided
//! by the function's hits. Costs were measured in loops of functions of several kinds, the *surroundings*.

use tiptoe_event::Cost;

use super::functions::{LOOPS, SURROUNDINGS};
use super::median;

/// The lowest cost, because a store and two jumps are never quite free.
pub const FLOOR_NS: f64 = 0.05;
/// The interval's low end, as a part of the cost in the hottest loop.
const CHEAPER: f64 = 0.7;
/// The interval's high end, as a multiple of the cost in the dearest surrounding.
const DEARER: f64 = 2.0;
/// The most that a hit costs if nothing is cached.
const COLD_NS: f64 = 300.0;

/// The time of an unpatched call, for [`Curve::elsewhere`].
const CALL_NS: f64 = 2.0;

/// A measured loop in one surrounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub gap_ns: f64,
    pub added_ns: f64,
}

type Points = [Point; LOOPS.len()];

/// A hit's cost in each surrounding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Curve {
    surroundings: [Points; SURROUNDINGS.len()],
}

impl Curve {
    /// Returns a curve, equal in all surroundings, from the ns that a hit added in each loop on other machines.
    pub(super) const fn elsewhere(added: [f64; LOOPS.len()]) -> Curve {
        let mut points = [Point {
            gap_ns: 0.0,
            added_ns: 0.0,
        }; LOOPS.len()];
        let mut index = 0;
        while index < LOOPS.len() {
            points[index] = Point {
                gap_ns: LOOPS[index] as f64 * (CALL_NS + added[index]),
                added_ns: added[index],
            };
            index += 1;
        }
        Curve::new([points; SURROUNDINGS.len()])
    }

    /// Returns the curve through these points, which must be sorted by gap.
    pub(super) const fn new(surroundings: [Points; SURROUNDINGS.len()]) -> Curve {
        Curve { surroundings }
    }

    pub(super) fn is_ordered(&self) -> bool {
        let mut surroundings = self.surroundings.iter();
        surroundings.all(|points| points.is_sorted_by(|a, b| a.gap_ns < b.gap_ns))
    }

    /// Returns the cost of a hit if the mean gap is `gap_ns`: the median of the surroundings.
    pub fn at(&self, gap_ns: f64) -> Cost {
        let middle = median(
            self.surroundings
                .map(|points| price(&points, gap_ns))
                .into(),
        );
        let hottest = median(self.surroundings.map(|[first, ..]| first.added_ns).into());
        let low = hottest.min(middle) * CHEAPER;
        let worst = self.surroundings.iter().map(|points| worst(points, gap_ns));
        let high = worst.fold(middle, f64::max) * DEARER;
        let [low, middle, high] = [low, middle, high].map(|ns| ns.max(FLOOR_NS));
        Cost::between(low, middle, high).at_most(gap_ns)
    }
}

/// Returns the price: proportional to the gap below the first point, linear in the gap's logarithm between two points,
/// constant above the last.
fn price(points: &Points, gap_ns: f64) -> f64 {
    let [first, .., last] = points;
    match points.iter().position(|point| gap_ns <= point.gap_ns) {
        Some(0) => first.added_ns * gap_ns / first.gap_ns,
        None => last.added_ns,
        Some(i) => {
            let (a, b) = (points[i - 1], points[i]);
            let part = (gap_ns / a.gap_ns).ln() / (b.gap_ns / a.gap_ns).ln();
            a.added_ns + (b.added_ns - a.added_ns) * part
        }
    }
}

/// Returns the highest price, before [`DEARER`] multiplies it.
fn worst(points: &Points, gap_ns: f64) -> f64 {
    let [.., last] = points;
    if gap_ns <= last.gap_ns {
        return price(points, gap_ns);
    }
    let grown = last.added_ns * gap_ns / last.gap_ns;
    grown.min(last.added_ns.max(COLD_NS / DEARER))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(times: [f64; SURROUNDINGS.len()]) -> Curve {
        let gaps = [2.0, 20.0, 200.0, 2_000.0, 20_000.0];
        let added = [0.5, 1.0, 1.0, 3.0, 10.0];
        Curve::new(times.map(|times| {
            std::array::from_fn(|i| Point {
                gap_ns: gaps[i],
                added_ns: added[i] * times,
            })
        }))
    }

    #[test]
    fn the_price_follows_the_time_between_hits() {
        let same = curve([1.0; 3]);
        let check = |gap, want: f64| {
            let got = same.at(gap).ns;
            assert!((got - want).abs() < 1e-9, "{gap}: {got}");
        };
        check(2.0, 0.5);
        check(1.0, 0.25);
        check(20.0, 1.0);
        check(200.0 * 10f64.sqrt(), 2.0);
        check(20_000.0, 10.0);
        check(1e9, 10.0);
    }

    #[test]
    fn the_estimate_is_the_middle_surrounding_and_the_interval_holds_all() {
        let cost = curve([0.1, 1.0, 1.5]).at(2_000.0);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(cost.ns, 3.0), "{cost:?}");
        assert!(near(cost.low_ns, 0.5 * CHEAPER), "{cost:?}");
        assert!(near(cost.high_ns, 4.5 * DEARER), "{cost:?}");
    }

    #[test]
    fn a_hit_never_costs_more_than_the_time_to_the_next() {
        for gap in [0.01, 0.1, 1.0, 3.0, 10.0, 1e3, 1e6] {
            for times in [[0.0; 3], [-1.0; 3], [1.0; 3], [100.0; 3]] {
                let cost = curve(times).at(gap);
                assert!(cost.high_ns <= gap, "{gap}: {cost:?}");
                assert!(0.0 < cost.low_ns && cost.low_ns <= cost.ns && cost.ns <= cost.high_ns);
            }
        }
    }

    #[test]
    fn a_rare_hit_may_find_nothing_cached() {
        let same = curve([1.0; 3]);
        assert!((same.at(60_000.0).high_ns - 60.0).abs() < 1e-9);
        assert!((same.at(1e9).high_ns - COLD_NS).abs() < 1e-9);
    }
}
