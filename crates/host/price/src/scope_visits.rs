//! Measures entering and leaving a scope (a label on a thread's work), with the code of tiptoe's library in a target:
//! one scope, then 100 in turns. The call into the library is not included.

use std::hint::black_box;
use std::sync::atomic::AtomicU64;

use tiptoe_event::Cost;
use tiptoe_label::switch::Thread;
use tiptoe_wire::scopes::{STAMP, WIDTH};
use tiptoe_wire::{Geometry, Words};

use super::cache::PriceCache;
use super::price::{self, Price};
use super::{each_turn, one_to_many};
use crate::clock;

struct Visit(Cost);

impl Price for Visit {
    const KIND: &'static str = "scopes";

    fn numbers(&self) -> Vec<f64> {
        price::numbers_of([self.0])
    }

    fn of_numbers(numbers: &[f64]) -> Option<Visit> {
        price::costs(numbers).map(|[cost]| Visit(cost))
    }
}

/// Returns the cost of entering and leaving a scope, cached or measured.
pub fn scope_visit(prices: &PriceCache) -> Cost {
    let measured = || Some(Visit(measure()));
    prices
        .take(measured)
        .map_or_else(measure, |Visit(cost)| cost)
}

fn measure() -> Cost {
    let words = |len: u32| -> Vec<AtomicU64> { (0..len).map(|_| AtomicU64::new(0)).collect() };
    let (slab, own, shared) = (words(Geometry::FIRST_SLOT), words(WIDTH), words(WIDTH));
    let [slab, own, shared] = [&slab, &own, &shared].map(|words| Words::new(words));
    shared.store(STAMP as usize, 1);
    let thread = Thread::new(slab, own, shared);
    let each = |scopes: u64| {
        each_turn(|turn| {
            let label = black_box(0x1000 + 64 * (turn % scopes));
            let token = thread.enters(label, false, clock::ticks(), || b"scope");
            thread.leaves(token, clock::ticks());
        })
    };
    one_to_many(each, 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_estimate() {
        let cost = measure();
        assert!(0.0 < cost.low_ns && cost.low_ns <= cost.ns && cost.ns <= cost.high_ns);
    }
}
