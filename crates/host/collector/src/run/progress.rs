//! What a run has counted so far.

use std::sync::{Arc, OnceLock};

use tiptoe_event::Cost;
use tiptoe_price::{CostRequest, PriceCache, UnitCosts, unit_costs};
use tiptoe_session::Programs;

use super::Run;
use crate::request::{Error, Observer, Progress};
use crate::totals::{Events, Prices};
use crate::tracee::{Source, Tracee};

/// The size of the stack of the thread that learns prices.
const STACK: usize = 1 << 20;

/// The prices of hits while a run counts. A thread of its own learns them, because measuring them takes 0.1 s if no
/// earlier run did, and the loop must serve its targets in that time.
#[derive(Default)]
pub(super) struct RunPrices(Option<Arc<OnceLock<UnitCosts>>>);

impl RunPrices {
    /// Returns the prices, if they are known.
    fn get(&mut self, want: CostRequest) -> Option<UnitCosts> {
        let known = self.0.get_or_insert_with(|| {
            let known = Arc::new(OnceLock::new());
            let learned = Arc::clone(&known);
            let thread = std::thread::Builder::new().stack_size(STACK);
            // If there is no room for a thread, the cost is only in the report.
            let _ = thread.spawn(move || {
                learned.get_or_init(|| unit_costs(want, &PriceCache::of_this_user()));
            });
            known
        });
        known.get().copied()
    }
}

impl Run<'_> {
    /// Reports what was counted so far, if the observer wants it now.
    pub(super) fn report_progress(
        &self,
        prices: &mut RunPrices,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        // During a delay nothing counts.
        if self.begin.is_some() || !observer.wants_progress() {
            return Ok(());
        }
        let progress = match self.plan.locks {
            true => self.waits_so_far(),
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

    fn cpu_ns(&self) -> u64 {
        let times = self.tracees.iter().map(Tracee::cpu_time);
        times.sum::<std::time::Duration>().as_nanos() as u64
    }

    fn hits_so_far(&self, prices: &mut RunPrices) -> Result<Progress, Error> {
        let mut events = Events::default();
        for tracee in &self.tracees {
            events.add(tracee, tracee.read(None, self.start)?);
        }
        events.since(&self.baseline);
        let all = || events.gates.values().chain(events.by_name.values());
        let hits = all().map(|total| total.all.reading.hits()).sum();
        let cpu_ns = self.cpu_ns();
        let cost = prices.get(self.prices_wanted()).map(|costs| {
            let prices = Prices {
                costs,
                filtered: self.request.filter.is_some(),
                under: self.request.under.is_some(),
                cpu_ns,
            };
            let sum = all().fold(Cost::default(), |sum, total| sum.plus(prices.of(total)));
            tiptoe_session::Cost::estimated(hits, prices.sum(sum), cpu_ns)
        });
        let counted = events.by_name.values();
        Ok(Progress {
            hits: counted.map(|total| total.all.reading.count).sum(),
            cost,
        })
    }

    /// Returns the waits so far. Their cost is known only if the kernel measures it, because it depends on how many
    /// were timed.
    fn waits_so_far(&self) -> Progress {
        let waits = self.tracees.iter().map(Tracee::waits_so_far);
        let waits = waits.fold(0, u64::saturating_add);
        let is_measured = self.tracees.iter().all(Tracee::is_in_kernel);
        let times = self.tracees.iter().filter_map(Tracee::times_in_kernel);
        let programs = times.fold(Programs::default(), |sum, (own, _)| Programs {
            runs: sum.runs + own.runs,
            run_ns: sum.run_ns + own.run_ns,
            ..sum
        });
        Progress {
            hits: waits,
            cost: is_measured.then(|| tiptoe_session::Cost::measured(programs, self.cpu_ns())),
        }
    }
}
