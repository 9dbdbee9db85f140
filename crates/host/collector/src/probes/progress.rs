//! The counts so far, and their cost.

use std::sync::{Arc, OnceLock};

use tiptoe_event::Cost;
use tiptoe_price::{CostRequest, FutexCosts, PriceCache, UnitCosts, futex_calls, unit_costs};

use super::prices::prices_wanted;
use super::{Probes, lock_section};
use crate::clock::RunClock;
use crate::drive::Targets;
use crate::error::Error;
use crate::request::Progress;
use crate::ulocks::WaitTotals;

const STACK: usize = 1 << 20;

/// Separate threads measure the prices, because measuring may take 0.1 s, and the loop must not wait.
#[derive(Default)]
pub(super) struct RunPrices {
    hits: Option<Arc<OnceLock<UnitCosts>>>,
    waits: Option<Arc<OnceLock<FutexCosts>>>,
}

fn learn<P: Send + Sync + 'static>(
    price: impl FnOnce(&PriceCache) -> P + Send + 'static,
) -> Arc<OnceLock<P>> {
    let known = Arc::new(OnceLock::new());
    let learned = Arc::clone(&known);
    let thread = std::thread::Builder::new().stack_size(STACK);
    // If no thread can be created, only the final report has the cost.
    let _ = thread.spawn(move || {
        learned.get_or_init(|| price(&PriceCache::of_this_user()));
    });
    known
}

impl RunPrices {
    fn hits(&mut self, wanted: CostRequest) -> Option<UnitCosts> {
        let known = self
            .hits
            .get_or_insert_with(|| learn(move |kept| unit_costs(wanted, kept)));
        known.get().copied()
    }

    fn waits(&mut self) -> Option<&FutexCosts> {
        self.waits.get_or_insert_with(|| learn(futex_calls)).get()
    }
}

impl Probes<'_> {
    pub(super) fn hits_so_far(
        &mut self,
        cpu_ns: u64,
        at: &Targets,
        clock: RunClock,
    ) -> Result<Progress, Error> {
        let events = self.events_by(None, at, clock)?;
        let all = || events.gates.values().chain(events.by_name.values());
        let hits = all().map(|total| total.all.reading.hits()).sum();
        let cost = self.prices.hits(prices_wanted(at)).map(|costs| {
            let prices = self.event_prices(costs, cpu_ns);
            let sum = all().fold(Cost::default(), |sum, total| sum.plus(prices.of(total)));
            tiptoe_session::Cost::estimated(hits, prices.capped(sum), cpu_ns)
        });
        let counted = events.by_name.values();
        Ok(Progress {
            hits: counted.map(|total| total.all.reading.count).sum(),
            cost,
        })
    }

    pub(super) fn waits_so_far(&mut self, cpu_ns: u64, at: &Targets) -> Result<Progress, Error> {
        let mut all = WaitTotals::default();
        for tracee in &at.traced {
            all.add(tracee.locks.waits_so_far(&tracee.process)?);
        }
        let hooks = || self.prices.waits().copied();
        let cost = lock_section::cost(at, all, 0, cpu_ns, hooks);
        Ok(Progress {
            hits: all.waits,
            cost,
        })
    }
}
