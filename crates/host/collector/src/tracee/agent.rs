//! What the agent (tiptoe's library) counts.

use std::cell::RefCell;
use std::time::Duration;

use tiptoe_session::Note;

use super::{Plan, TracedProcess};
use crate::clock::RunClock;
use crate::error::Error;
use crate::planner::Follow;
use budget::CallBudget;
use fork_counts::ForkCounts;
use meter::Meters;
use records::Rings;
use wait_sampling::Thinning;

mod budget;
mod calls;
mod foreign;
mod fork_counts;
mod meter;
mod patches;
mod reads;
mod records;
mod wait_sampling;

pub use foreign::came_and_went;
pub use meter::WINDOW as TRAP_WINDOW;
pub use patches::{AgentCounter, Arming, FirstHooks, Patches, PlanState};
pub use patches::{costly_traps, described_code, ifuncs, library};
pub use reads::Reads;
pub use records::{PATIENCE, RecordedCall};

const TOGGLES: u64 = 1000;

#[derive(Default)]
pub struct InProcess {
    pub patches: Patches,
    meters: RefCell<Meters>,
    call_budget: Option<CallBudget>,
    thinning: Option<Thinning>,
    rings: RefCell<Option<Rings>>,
    pub forks: ForkCounts,
}

impl InProcess {
    pub fn begin_budget(&mut self, plan: &Plan, used: Duration) {
        self.call_budget = CallBudget::of(plan, used);
        self.thinning = Thinning::of(plan, used);
    }

    /// Must be called before the first record is written.
    pub fn open_rings(&mut self, plan: &Plan) {
        *self.rings.borrow_mut() = Some(Rings::new(plan.wants_calls));
    }

    pub fn read_records(&self, process: &TracedProcess, clock: RunClock, patience: u32) {
        if let (Some(rings), Some(link)) = (&mut *self.rings.borrow_mut(), &process.target.link) {
            rings.read(&link.data(), &self.patches.counters, clock, patience);
        }
    }

    pub fn take_calls(&self) -> Vec<RecordedCall> {
        let mut rings = self.rings.borrow_mut();
        let calls = rings.as_mut().map(|rings| std::mem::take(&mut rings.calls));
        calls.unwrap_or_default()
    }

    pub fn switch_off_hot_traps(&self, process: &TracedProcess) -> Vec<Note> {
        let mut meters = self.meters.borrow_mut();
        meters.switch_off_hot(process, &self.patches)
    }

    pub fn refill_budgets(&self, process: &TracedProcess) {
        let Some(link) = &process.target.link else {
            return;
        };
        if let Some(thinning) = &self.thinning {
            thinning.look(process.target.fetch_total_cpu_time(), link);
        }
        if let Some(call_budget) = &self.call_budget {
            let (used, data) = (process.target.fetch_total_cpu_time(), link.data());
            call_budget.refill(used, &data, data.entered());
        }
    }

    pub fn spends(&self) -> bool {
        self.call_budget.is_some() || self.thinning.is_some()
    }

    pub fn halve_budget(&mut self) {
        if let Some(calls) = &mut self.call_budget {
            calls.share /= 2.0;
        }
        if let Some(waits) = &mut self.thinning {
            waits.share /= 2.0;
        }
    }

    pub fn has_budget(&self, process: &TracedProcess) -> bool {
        let mut counters = self.patches.counters.iter();
        let limits_waits = self.thinning.is_some() && process.target.link.is_some();
        limits_waits
            || self.call_budget.is_some()
                && counters.any(|one| one.follow.is_followed() || one.follow == Follow::Record)
    }

    /// Makes the agent count unfinished calls of ended threads as left without a return. Must be called before the last
    /// reading.
    pub fn bury_dead_threads(&self, process: &TracedProcess) {
        if let Some(link) = &process.target.link
            && self.patches.follows_calls()
            && process.has_serving_agent()
        {
            // On failure, the calls stay counted as unfinished.
            let _ = link.bury();
        }
    }

    pub fn toggle(
        &self,
        process: &TracedProcess,
        times: u64,
        mut stop: impl FnMut() -> bool,
    ) -> Result<u64, Error> {
        let Some(link) = &process.target.link else {
            return Ok(0);
        };
        let counters = self.patches.counters.iter();
        let addresses: Vec<u64> = counters.map(|one| one.site.address).collect();
        let mut done = 0;
        while done < times && !stop() {
            let some = (times - done).min(TOGGLES);
            link.toggle(&addresses, some)?;
            done += some;
        }
        Ok(done)
    }
}
