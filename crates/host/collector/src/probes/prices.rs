//! Estimates what the counted events cost their targets.

use tiptoe_event::Cost;
use tiptoe_price::{CostRequest, UnitCosts, followed, gate, recorded, timed, valued};

use super::event_sums::{Events, Total};
use crate::drive::Targets;
use crate::planner::Follow;
use crate::tracee::{Source, Tracee};

/// The assumed time between two rejected hits, whose number is unknown.
const COMMON_GAP_NS: f64 = 1_000.0;

pub(super) fn prices_wanted(at: &Targets) -> CostRequest {
    let mut sources = at.traced.iter().flat_map(Tracee::counters);
    CostRequest {
        trap: sources.clone().any(|(_, source)| source.is_trap()),
        kernel: sources.any(|(_, source)| matches!(source, Source::Kernel(_))),
    }
}

pub struct Prices {
    pub costs: UnitCosts,
    pub filtered: bool,
    pub under: bool,
    pub cpu_ns: u64,
}

impl Prices {
    /// Returns the cost of a hit that a filter or `--under` rejects; `None` if all hits count.
    pub fn of_rejected(&self, events: &Events) -> Option<Cost> {
        let traps_only = events.by_name.values().all(|total| total.source.is_trap());
        let cost = if traps_only {
            self.costs.trap
        } else {
            self.costs.filtered.at(COMMON_GAP_NS)
        };
        (self.filtered || self.under).then_some(cost)
    }

    pub fn of(&self, total: &Total) -> Cost {
        let hits = total.all.reading.hits();
        let unpaid = total.all.reading.only_counted();
        let gap_ns = self.gap_ns(hits);
        let paid = self.of_each(total, gap_ns).times(hits - unpaid.min(hits));
        paid.plus(self.counted(gap_ns).times(unpaid))
    }

    fn of_each(&self, total: &Total, gap_ns: f64) -> Cost {
        match total.source {
            Source::Kernel(step) => self.costs.kernel.of(step),
            Source::Agent { trap: true, .. } => self.costs.trap,
            Source::Agent {
                follow: Follow::Gate,
                ..
            } => self.followed(Follow::Gate, self.costs.count.at(gap_ns)),
            Source::Agent { follow, .. } => self.followed(follow, self.counted(gap_ns)),
        }
    }

    /// With a filter, a counted hit costs at least the larger of an unfiltered hit's and a rejected hit's cost, and
    /// at most their sum.
    fn counted(&self, gap_ns: f64) -> Cost {
        let count = self.costs.count.at(gap_ns);
        if !self.filtered {
            return count;
        }
        let rejected = self.costs.filtered.at(gap_ns);
        Cost {
            ns: count.ns.max(rejected.ns),
            low_ns: count.low_ns.max(rejected.low_ns),
            high_ns: count.high_ns + rejected.high_ns,
        }
    }

    fn followed(&self, follow: Follow, count: Cost) -> Cost {
        match follow {
            Follow::No => count,
            Follow::Values => valued(count),
            Follow::Returns => followed(count),
            Follow::Times => timed(followed(count), self.costs.reading_ns),
            Follow::TimedValues => timed(valued(followed(count)), self.costs.reading_ns),
            Follow::Gate => gate(followed(count)),
            Follow::Record => recorded(count, self.costs.reading_ns),
        }
    }

    fn gap_ns(&self, hits: u64) -> f64 {
        match (self.cpu_ns, hits) {
            (0, _) | (_, 0) => f64::INFINITY,
            (cpu_ns, hits) => cpu_ns as f64 / hits as f64,
        }
    }

    /// Returns the factor that makes costs fit the CPU time; 1 if they fit.
    pub fn payable_part(&self, costs: Cost) -> f64 {
        match costs.ns > 0.0 {
            true => self.capped(costs).ns / costs.ns,
            false => 1.0,
        }
    }

    pub fn capped(&self, costs: Cost) -> Cost {
        match self.cpu_ns {
            0 => costs,
            cpu_ns => costs.at_most(cpu_ns as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tiptoe_event::Reading;
    use tiptoe_kernel::Step;

    use crate::measured::Measured;

    const JUMP: Source = Source::Agent {
        trap: false,
        follow: Follow::No,
    };

    fn total(count: u64, source: Source) -> Total {
        let reading = Reading {
            count,
            ..Reading::default()
        };
        let times = None;
        Total {
            all: Measured { reading, times },
            source,
            names: Vec::new(),
            remarks: Vec::new(),
            bearers: 1,
            parts: BTreeMap::new(),
        }
    }

    const PRICES: Prices = Prices {
        costs: UnitCosts::DEFAULT,
        filtered: false,
        under: false,
        cpu_ns: 1_000_000_000,
    };

    #[test]
    fn a_function_is_priced_by_its_own_rate() {
        let each = |count| PRICES.of(&total(count, JUMP)).ns / count as f64;
        let [hot, warm, rare] = [400_000_000, 2_000_000, 1_000].map(each);
        assert!(hot < warm && warm < rare, "{hot} {warm} {rare}");
        assert!(hot < 1.0, "a hot loop's: {hot}");
    }

    #[test]
    fn a_hit_that_passes_a_filter_costs_its_count_too() {
        let filtered = Prices {
            filtered: true,
            ..PRICES
        };
        let of_all = total(400_000_000, JUMP);
        let [plain, passed] = [&PRICES, &filtered].map(|prices| prices.of(&of_all));
        let rejected = filtered.costs.filtered.at(filtered.gap_ns(400_000_000));
        let rejected = rejected.times(400_000_000);
        assert!(passed.ns >= plain.ns.max(rejected.ns));
        assert!(passed.high_ns >= (plain.high_ns + rejected.high_ns) * 0.999);
    }

    #[test]
    fn all_functions_together_cost_less_than_all_time() {
        let one = PRICES.of(&total(50_000_000, JUMP));
        let all = one.times(100);
        assert!(PRICES.capped(all).share_of(PRICES.cpu_ns).high <= 1.0);
        assert_eq!(PRICES.capped(one), one);
    }

    #[test]
    fn rows_added_up_to_more_than_all_time() {
        let one = PRICES.of(&total(50_000_000, JUMP));
        let all = one.times(100);
        assert!(all.ns > PRICES.cpu_ns as f64);
        let rows = all.ns * PRICES.payable_part(all);
        assert!((rows - PRICES.cpu_ns as f64).abs() < 1.0, "{rows}");
        assert_eq!(
            [one, Cost::default()].map(|cost| PRICES.payable_part(cost)),
            [1.0; 2]
        );
    }

    #[test]
    fn the_kernels_price_depends_on_the_instruction() {
        let each = |step| PRICES.of(&total(1_000, Source::Kernel(step))).ns / 1_000.0;
        let [nop, push, mov] = [Step::Nop, Step::Emulated, Step::Single].map(each);
        assert!(nop < push && 3.0 * push < mov, "{nop} {push} {mov}");
    }

    #[test]
    fn without_a_cpu_time_there_is_still_a_price() {
        let prices = Prices {
            cpu_ns: 0,
            ..PRICES
        };
        let cost = prices.capped(prices.of(&total(10, JUMP)));
        assert!(cost.ns > 0.0 && cost.high_ns.is_finite());
        assert_eq!(prices.of(&total(0, JUMP)).ns, 0.0);
    }
}
