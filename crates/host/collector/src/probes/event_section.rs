//! The session's events, and their cost.

use tiptoe_event::Cost;
use tiptoe_price::{PriceCache, UnitCosts, scope_visit, unit_costs};
use tiptoe_session::{Cost as SessionCost, Event, FunctionNote, KernelNote, Session};

use super::Probes;
use super::event_sums::Events;
use super::prices::{Prices, prices_wanted};
use crate::drive::Targets;

/// A BPF program's call and return are not measured, and may cost as much as its measured run. So the highest cost is
/// this multiple of the measured cost.
const CALLED: f64 = 2.0;

impl Probes<'_> {
    pub(super) fn event_prices(&self, costs: UnitCosts, cpu_ns: u64) -> Prices {
        Prices {
            costs,
            filtered: self.request.calls.filter.is_some(),
            under: self.request.calls.under.is_some(),
            cpu_ns,
        }
    }

    pub(super) fn add_events(&mut self, at: &Targets, session: &mut Session) -> SessionCost {
        let events = self.counts.end.take().unwrap_or_default();
        let kept = PriceCache::of_this_user();
        let costs = unit_costs(prices_wanted(at), &kept);
        let prices = self.event_prices(costs, session.cpu_ns);
        let mut sum = Cost::default();
        let mut hits = 0;
        for total in events.gates.values() {
            sum = sum.plus(prices.of(total));
            hits += total.all.reading.hits();
        }
        note_gates(&events, session);
        for name in &events.order {
            let Some(total) = events.by_name.get(name) else {
                continue;
            };
            let cost = prices.of(total);
            sum = sum.plus(cost);
            hits += total.all.reading.hits();
            let mut event = Event::new(name, total.source.via(), total.all.reading);
            if let Some(times) = &total.all.times {
                event = event.with_histogram(times);
            }
            event.cost_ns = cost.ns;
            event.names = total.names.clone();
            event.notes = total.notes();
            let parts = total.parts.iter();
            event.by = parts.map(|(key, part)| part.part(key)).collect();
            event.by.sort_by_key(|part| std::cmp::Reverse(part.count));
            session.events.push(event);
        }
        let part = prices.payable_part(sum);
        for event in &mut session.events {
            event.cost_ns *= part;
        }
        let visits = std::mem::take(&mut self.scopes.visits);
        if visits > 0 {
            sum = sum.plus(scope_visit(&kept).times(visits));
            hits += visits;
        }
        for (own, all) in at
            .traced
            .iter()
            .filter_map(|one| one.scopes.charging_times())
        {
            let ns = own.run_ns as f64;
            sum = sum.plus(Cost::between(ns, ns, CALLED * ns));
            hits += own.runs;
            let others = all.map_or(0, |all| all.run_ns.saturating_sub(own.run_ns));
            if others > own.run_ns {
                let note = KernelNote::OthersCost { ns: others };
                session.notes.push(note.into());
            }
        }
        SessionCost {
            calibrated: kept.calibrated(),
            rejected_unit_ns: prices.of_rejected(&events).map(|cost| cost.ns),
            ..SessionCost::estimated(hits, prices.capped(sum), session.cpu_ns)
        }
    }
}

fn note_gates(events: &Events, session: &mut Session) {
    for (event, total) in &events.gates {
        let function = || event.strip_prefix("uprobe:").unwrap_or(event).to_owned();
        let function_was = match total.all.reading.count {
            0 => FunctionNote::NeverCalled {
                function: function(),
            },
            calls => FunctionNote::Called {
                function: function(),
                calls,
            },
        };
        session.notes.push(function_was.into());
        let calls = total.all.reading.ends.map_or(0, |ends| ends.only_counted);
        if calls > 0 {
            let function = function();
            let note = FunctionNote::CallsNotFollowed { function, calls };
            session.notes.push(note.into());
        }
    }
}

pub(super) fn price_forks(at: &Targets, cost: &mut SessionCost, cpu_ns: u64) {
    let forks = at
        .traced
        .iter()
        .map(|tracee| (tracee, tracee.agent.forks.count(&tracee.process.target)));
    let forked: Vec<_> = forks.filter(|(_, forks)| *forks > 0).collect();
    let count: u64 = forked.iter().map(|(_, forks)| forks).sum();
    // Targets are mostly copies of one program, so the price of the target with the most forks is used for all.
    let most = forked.iter().max_by_key(|(_, forks)| *forks);
    if let Some(each) = most.and_then(|(tracee, _)| tracee.agent.forks.cost()) {
        cost.add_forks(count, each, cpu_ns);
    }
}
