//! The progress report of a run.

use std::sync::{Arc, OnceLock};

use tiptoe_event::Cost;
use tiptoe_price::{CostRequest, FutexCosts, PriceCache, UnitCosts, futex_calls, unit_costs};
use tiptoe_session::Programs;

use super::lock_section::cost_of;
use super::{Run, cpu_ns};
use crate::request::{Error, Observer, Progress};
use crate::tracee::{Source, Tracee};
use crate::ulocks::WaitTotals;

/// The stack size of a thread that measures prices.
const STACK: usize = 1 << 20;

/// The prices while a run counts. Threads of their own measure them: that takes 0.1 s unless an earlier run did it, and
/// the loop must not wait.
#[derive(Default)]
pub(super) struct RunPrices {
    hits: Option<Arc<OnceLock<UnitCosts>>>,
    waits: Option<Arc<OnceLock<FutexCosts>>>,
}

/// Starts a thread that measures a price.
fn learn<P: Send + Sync + 'static>(
    price: impl FnOnce(&PriceCache) -> P + Send + 'static,
) -> Arc<OnceLock<P>> {
    let known = Arc::new(OnceLock::new());
    let learned = Arc::clone(&known);
    let thread = std::thread::Builder::new().stack_size(STACK);
    // Without the thread, only the report has the cost.
    let _ = thread.spawn(move || {
        learned.get_or_init(|| price(&PriceCache::of_this_user()));
    });
    known
}

impl Run<'_> {
    /// Reports the counts so far, if the observer wants them now.
    pub(super) fn report_progress(
        &self,
        prices: &mut RunPrices,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        // Nothing counts during a delay.
        if self.begin.is_some() || !observer.wants_progress() {
            return Ok(());
        }
        let progress = match self.plan.locks {
            true => self.waits_so_far(prices)?,
            false => self.hits_so_far(prices)?,
        };
        observer.progress(&progress);
        Ok(())
    }

    /// Returns the prices that the kinds of these probes need.
    pub(super) fn prices_wanted(&self) -> CostRequest {
        let mut sources = self.tracees.iter().flat_map(|tracee| &tracee.counters);
        CostRequest {
            trap: sources
                .clone()
                .any(|c| matches!(c.source, Source::Agent { trap: true, .. })),
            kernel: sources.any(|c| matches!(c.source, Source::Kernel(_))),
        }
    }

    fn hits_so_far(&self, prices: &mut RunPrices) -> Result<Progress, Error> {
        let events = self.events_by(None)?;
        let all = || events.gates.values().chain(events.by_name.values());
        let hits = all().map(|total| total.all.reading.hits()).sum();
        let cpu_ns = cpu_ns(&self.tracees);
        let cost = self.hit_prices(prices).map(|costs| {
            let prices = self.prices(costs, cpu_ns);
            let sum = all().fold(Cost::default(), |sum, total| sum.plus(prices.of(total)));
            tiptoe_session::Cost::estimated(hits, prices.sum(sum), cpu_ns)
        });
        let counted = events.by_name.values();
        Ok(Progress {
            hits: counted.map(|total| total.all.reading.count).sum(),
            cost,
        })
    }

    /// Returns the waits so far, with their cost.
    fn waits_so_far(&self, prices: &mut RunPrices) -> Result<Progress, Error> {
        let mut all = WaitTotals::default();
        for tracee in &self.tracees {
            let of_one = tracee.waits_so_far()?;
            all = WaitTotals {
                waits: all.waits.saturating_add(of_one.waits),
                untimed: all.untimed.saturating_add(of_one.untimed),
                wakes: all.wakes.saturating_add(of_one.wakes),
                holds: all.holds.saturating_add(of_one.holds),
            };
        }
        let times = self.tracees.iter().filter_map(Tracee::times_in_kernel);
        let programs = times.fold(Programs::default(), |sum, (own, _)| Programs {
            runs: sum.runs + own.runs,
            run_ns: sum.run_ns + own.run_ns,
            ..sum
        });
        let cost = match self.tracees.iter().all(Tracee::is_in_kernel) {
            true => Some(tiptoe_session::Cost::measured(
                programs,
                cpu_ns(&self.tracees),
            )),
            false => {
                let costs = prices.waits.get_or_insert_with(|| learn(futex_calls));
                let cost = costs.get().map(|costs| cost_of(all, costs));
                cost.map(|cost| {
                    let ns = programs.run_ns as f64;
                    let cost = cost.plus(Cost::between(ns, ns, ns));
                    let calls = all.waits.saturating_add(all.wakes);
                    tiptoe_session::Cost::estimated(calls, cost, cpu_ns(&self.tracees))
                })
            }
        };
        Ok(Progress {
            hits: all.waits,
            cost,
        })
    }

    fn hit_prices(&self, prices: &mut RunPrices) -> Option<UnitCosts> {
        let want = self.prices_wanted();
        let known = prices
            .hits
            .get_or_insert_with(|| learn(move |kept| unit_costs(want, kept)));
        known.get().copied()
    }
}
