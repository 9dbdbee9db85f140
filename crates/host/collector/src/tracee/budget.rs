//! Keeps followed and recorded calls within the budget. Each thread's slab has a *credit* of such
//! calls, refilled every few milliseconds from the budget's share of the process's CPU time.
//! Without credit, calls are only counted.
//!
//! A thread decrements its credit without atomics. This is a race: the thread may overwrite a
//! refill. The next refill repairs that.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use tiptoe_price::clock;
use tiptoe_wire::Data;

use super::{Counter, Plan, Source, Tracee};
use crate::planner::Follow;

/// The part of a budget that is left to other spenders.
const HALF: f64 = 0.5;
/// The credit of a thread if there is no budget.
pub const UNLIMITED: u64 = u64::MAX >> 1;
/// A new thread's credit.
pub const INITIAL: u64 = 1000;
/// The most unspent budget to keep, in CPU time.
const MOST_SAVED: Duration = Duration::from_millis(200);
/// The cost of following or recording a call without the clock: frame, detours and histogram.
const FOLLOWED_NS: f64 = 15.0;

/// The budget for following and recording calls of one process.
pub struct CallBudget {
    /// The part of the CPU time that may be spent.
    share: f64,
    /// The cost of a followed or recorded call.
    call_ns: f64,
    accounts: RefCell<Accounts>,
}

#[derive(Default)]
struct Accounts {
    /// The process's CPU time at the last refill.
    cpu_time: Duration,
    /// The unspent budget in ns; negative while new threads spend their initial credit.
    saved_ns: f64,
    /// The credit that each slab had after the last refill.
    credits: BTreeMap<u32, u64>,
}

impl CallBudget {
    /// Returns the budget of a plan, for a process that has used this CPU time; `None` if calls are
    /// only counted, or `--budget` is off.
    pub fn of(plan: &Plan, used: Duration) -> Option<CallBudget> {
        let clock_readings = match plan.follow() {
            Follow::No | Follow::Values | Follow::Gate => return None,
            Follow::Returns => 0.0,
            Follow::Record => 1.0,
            Follow::Times | Follow::TimedValues => 2.0,
        };
        Some(CallBudget {
            share: plan.share()?,
            call_ns: FOLLOWED_NS + clock_readings * clock::reading_ns(),
            accounts: RefCell::new(Accounts {
                cpu_time: used,
                ..Accounts::default()
            }),
        })
    }

    /// Adds what was earned, subtracts what threads spent, and refills those threads from the rest.
    fn refill(&self, used: Duration, data: &Data, slabs: impl Iterator<Item = u32>) {
        let mut accounts = self.accounts.borrow_mut();
        let earned = used.saturating_sub(accounts.cpu_time).as_nanos() as f64 * self.share;
        accounts.cpu_time = used.max(accounts.cpu_time);
        let mut spenders = Vec::new();
        for slab in slabs {
            let left = data.credit(slab);
            let had = *accounts.credits.entry(slab).or_insert(INITIAL);
            if left != had || left == 0 {
                accounts.saved_ns -= had.saturating_sub(left) as f64 * self.call_ns;
                spenders.push(slab);
            }
        }
        let most = MOST_SAVED.as_nanos() as f64 * self.share;
        accounts.saved_ns = (accounts.saved_ns + earned).min(most);
        let calls = accounts.saved_ns.max(0.0) / self.call_ns;
        let each = (calls / spenders.len().max(1) as f64) as u64;
        for slab in spenders {
            data.set_credit(slab, each);
            accounts.credits.insert(slab, each);
        }
    }
}

impl Tracee {
    /// Refills the credit of threads that spent some, and sets how many waits are timed.
    pub fn refill_budgets(&self) {
        let Some(link) = &self.target.link else {
            return;
        };
        if let Some(thinning) = &self.agent.thinning {
            thinning.look(self.target.fetch_total_cpu_time(), link);
        }
        if let Some(call_budget) = &self.agent.call_budget {
            let (used, data) = (self.target.fetch_total_cpu_time(), link.data());
            call_budget.refill(used, &data, data.entered());
        }
    }

    /// Splits the budget evenly if both the agent and the kernel spend it.
    pub(super) fn share_budget(&mut self) {
        let throttle = self.uprobes.as_mut().and_then(|all| all.throttle.as_mut());
        let (calls, waits) = (&mut self.agent.call_budget, &mut self.agent.thinning);
        if let Some(throttle) = throttle
            && (calls.is_some() || waits.is_some())
        {
            throttle.leave(HALF);
            calls.iter_mut().for_each(|calls| calls.share *= HALF);
            waits.iter_mut().for_each(|waits| waits.leave(HALF));
        }
    }

    /// Returns whether a budget limits anything here: calls, waits, or the kernel's probes.
    pub fn has_budget(&self) -> bool {
        let is_throttled = self.uprobes.as_ref().is_some_and(|all| all.is_throttled);
        if self.agent.thinning.is_some() && self.target.link.is_some() || is_throttled {
            return true;
        }
        let is_recorded =
            |counter: &Counter| agent_follows(counter, |follow| follow == Follow::Record);
        let mut counters = self.counters.iter();
        self.agent.call_budget.is_some() && counters.any(|one| is_followed(one) || is_recorded(one))
    }

    /// Returns whether any calls are followed to their return.
    pub(super) fn follows_calls(&self) -> bool {
        self.counters.iter().chain(&self.gates).any(is_followed)
    }
}

fn is_followed(counter: &Counter) -> bool {
    agent_follows(counter, Follow::is_followed)
}

fn agent_follows(counter: &Counter, matches: impl Fn(Follow) -> bool) -> bool {
    matches!(counter.source, Source::Agent { follow, .. } if matches(follow))
}
