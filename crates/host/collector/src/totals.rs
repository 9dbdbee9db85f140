//! Events over all processes, and their price.

use std::collections::BTreeMap;

use tiptoe_event::{Cost, Reading, Via};
use tiptoe_kernel::Step;
use tiptoe_price::{UnitCosts, followed, gate, recorded, timed, valued};
use tiptoe_session::{EventNote, Note, OTHER_VALUES};

use crate::measured::Measured;
use crate::planner::Follow;
use crate::tracee::{Counter, Reads, Source, Tracee};

/// The assumed time between two hits of a function with many callers, if hits are not counted.
const COMMON_GAP_NS: f64 = 1_000.0;

/// One event over all processes.
pub struct Total {
    pub all: Measured,
    pub via: Via,
    pub trap: bool,
    pub follow: Follow,
    /// How the kernel executes the instruction, if it counts.
    pub step: Step,
    pub names: Vec<String>,
    /// Further remarks for the user.
    pub remarks: Vec<Note>,
    /// The most functions of this name in one process.
    pub bearers: u64,
    pub parts: BTreeMap<String, Measured>,
}

impl Total {
    fn of(counter: &Counter) -> Total {
        let (via, trap, follow, step) = match counter.source {
            Source::Agent { trap, follow, .. } => (Via::Agent, trap, follow, Step::default()),
            Source::Kernel(place) => (Via::Kernel, false, Follow::No, place.step),
        };
        Total {
            all: Measured::default(),
            via,
            trap,
            follow,
            step,
            names: counter.names.clone(),
            remarks: Vec::new(),
            bearers: 0,
            parts: BTreeMap::new(),
        }
    }

    pub fn notes(&self) -> Vec<Note> {
        let functions = self.bearers;
        let several = (functions > 1).then(|| EventNote::SameName { functions }.into());
        let trap = self.trap.then(|| EventNote::Trap.into());
        let others = self.parts.contains_key(OTHER_VALUES);
        let others = others.then(|| EventNote::ValuesWithoutRoom.into());
        let remarks = self.remarks.iter().cloned().chain(others);
        several.into_iter().chain(remarks).chain(trap).collect()
    }
}

#[derive(Default)]
pub struct Events {
    pub order: Vec<String>,
    pub by_name: BTreeMap<String, Total>,
    /// The functions whose calls must enclose a hit (`--under`).
    pub gates: BTreeMap<String, Total>,
}

impl Events {
    pub fn add(&mut self, tracee: &Tracee, reads: Reads) {
        for (gate, reading) in tracee.gates.iter().zip(&reads.gates) {
            let total = self.gates.entry(gate.event.clone());
            let (reading, times) = (*reading, None);
            let total = total.or_insert_with(|| Total::of(gate));
            total.all.add(&Measured { reading, times });
        }
        let mut bearers: BTreeMap<&str, u64> = BTreeMap::new();
        for (index, counter) in tracee.counters.iter().enumerate() {
            let total = self.by_name.entry(counter.event.clone());
            let total = total.or_insert_with(|| {
                self.order.push(counter.event.clone());
                Total::of(counter)
            });
            let here = bearers.entry(&counter.event).or_insert(0);
            *here += 1;
            total.bearers = total.bearers.max(*here);
            let fresh = counter.notes.iter();
            let fresh = fresh.filter(|note| !total.remarks.contains(note));
            let fresh: Vec<Note> = fresh.cloned().collect();
            total.remarks.extend(fresh);
            // Functions of the same name count together.
            if let Some(all) = reads.all.get(index) {
                total.all.add(all);
            }
            for (key, part) in reads.parts.get(index).into_iter().flatten() {
                total.parts.entry(key.clone()).or_default().add(part);
            }
        }
    }

    /// Subtracts earlier counts.
    pub fn since(&mut self, before: &Events) {
        for (name, earlier) in &before.by_name {
            let Some(total) = self.by_name.get_mut(name) else {
                continue;
            };
            total.all.since(&earlier.all);
            for (key, earlier) in &earlier.parts {
                if let Some(part) = total.parts.get_mut(key) {
                    part.since(earlier);
                }
            }
            total.parts.retain(|_, part| part.reading.hits() > 0);
        }
        for (name, earlier) in &before.gates {
            if let Some(total) = self.gates.get_mut(name) {
                total.all.since(&earlier.all);
            }
        }
    }

    pub fn readings(&self) -> BTreeMap<String, Reading> {
        self.by_name
            .iter()
            .map(|(name, total)| (name.clone(), total.all.reading))
            .collect()
    }
}

/// The cost of a hit of each kind.
pub struct Prices {
    pub costs: UnitCosts,
    pub filtered: bool,
    /// Whether some hits do not count because of `--under`.
    pub under: bool,
    /// CPU time that the target used.
    pub cpu_ns: u64,
}

impl Prices {
    /// Returns the cost of a hit that does not count; `None` if all hits count. The number of such
    /// hits is unknown.
    pub fn of_rejected(&self, events: &Events) -> Option<Cost> {
        let traps_only = events.by_name.values().all(|total| total.trap);
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
        paid.plus(self.costs.count.at(gap_ns).times(unpaid))
    }

    fn of_each(&self, total: &Total, gap_ns: f64) -> Cost {
        match (total.via, total.trap) {
            (Via::Kernel, _) => self.costs.kernel.of(total.step),
            (_, true) => self.costs.trap,
            // A hit that passes the filter costs what a rejected one does, and its count.
            _ if self.filtered && total.follow != Follow::Gate => {
                self.followed(total.follow, self.costs.filtered.at(gap_ns))
            }
            _ => self.followed(total.follow, self.costs.count.at(gap_ns)),
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

    /// Returns the average time between two hits; infinite if unknown.
    fn gap_ns(&self, hits: u64) -> f64 {
        match (self.cpu_ns, hits) {
            (0, _) | (_, 0) => f64::INFINITY,
            (cpu_ns, hits) => cpu_ns as f64 / hits as f64,
        }
    }

    /// Returns the part of a sum of costs that fits the CPU time: 1 if all of it does.
    pub fn payable_part(&self, costs: Cost) -> f64 {
        match costs.ns > 0.0 {
            true => self.sum(costs).ns / costs.ns,
            false => 1.0,
        }
    }

    /// Returns the sum of costs, limited to all CPU time.
    pub fn sum(&self, costs: Cost) -> Cost {
        match self.cpu_ns {
            0 => costs,
            cpu_ns => costs.at_most(cpu_ns as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_price::UnitCosts;

    fn total(count: u64, via: Via, step: Step) -> Total {
        let reading = Reading {
            count,
            ..Reading::default()
        };
        let times = None;
        Total {
            all: Measured { reading, times },
            via,
            trap: false,
            follow: Follow::No,
            step,
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
        let each = |count| PRICES.of(&total(count, Via::Agent, Step::Single)).ns / count as f64;
        let [hot, warm, rare] = [400_000_000, 2_000_000, 1_000].map(each);
        assert!(hot < warm && warm < rare, "{hot} {warm} {rare}");
        assert!(hot < 1.0, "a hot loop's: {hot}");
    }

    #[test]
    fn all_functions_together_cost_less_than_all_time() {
        let one = PRICES.of(&total(50_000_000, Via::Agent, Step::Single));
        let all = one.times(100);
        assert!(PRICES.sum(all).share_of(PRICES.cpu_ns).high <= 1.0);
        assert_eq!(PRICES.sum(one), one);
    }

    #[test]
    fn rows_added_up_to_more_than_all_time() {
        let one = PRICES.of(&total(50_000_000, Via::Agent, Step::Single));
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
        let each = |step| PRICES.of(&total(1_000, Via::Kernel, step)).ns / 1_000.0;
        let [nop, push, mov] = [Step::Nop, Step::Emulated, Step::Single].map(each);
        assert!(nop < push && 3.0 * push < mov, "{nop} {push} {mov}");
    }

    #[test]
    fn without_a_cpu_time_there_is_still_a_price() {
        let prices = Prices {
            cpu_ns: 0,
            ..PRICES
        };
        let cost = prices.sum(prices.of(&total(10, Via::Agent, Step::Single)));
        assert!(cost.ns > 0.0 && cost.high_ns.is_finite());
        assert_eq!(prices.of(&total(0, Via::Agent, Step::Single)).ns, 0.0);
    }
}
