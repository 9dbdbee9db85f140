//! Pays for followed and recorded calls. Each thread has a credit of calls in its slab, which is
//! refilled every few milliseconds from the budget's share of the process's CPU time. A call
//! without credit is only counted.
//!
//! A thread decrements its credit without atomics, which races with a refill: the thread may
//! overwrite it. That loses one refill, and the next one is seen.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use tiptoe_price::clock;
use tiptoe_wire::Data;

use super::{Counter, Plan, Source, Tracee};
use crate::planner::Follow;

/// The credit of a thread if there is no budget.
pub const ANY: u64 = u64::MAX >> 1;
/// The calls that a thread may follow or record before its credit is first checked.
pub const FIRST: u64 = 1000;
/// The limit of savings: the share of this much CPU time.
const SAVED: Duration = Duration::from_millis(200);
/// The cost of following or recording a call without the clock: frame, detours and histogram.
const FOLLOWED_NS: f64 = 15.0;

pub struct Purse {
    /// The part of the CPU time that may be spent.
    share: f64,
    /// The cost of a followed or recorded call.
    call_ns: f64,
    accounts: RefCell<Accounts>,
}

#[derive(Default)]
struct Accounts {
    /// The CPU time credited so far.
    paid: Duration,
    /// The savings in ns; negative after threads spent their first credit.
    saved_ns: f64,
    /// The credit that each slab had after the last refill.
    credits: BTreeMap<u32, u64>,
}

impl Purse {
    /// Returns the purse of a plan; `None` if calls are only counted, or their cost is unlimited.
    pub fn of(plan: &Plan) -> Option<Purse> {
        let readings = match plan.follow() {
            Follow::No | Follow::Values | Follow::Gate => return None,
            Follow::Returns => 0.0,
            Follow::Record => 1.0,
            Follow::Times | Follow::TimedValues => 2.0,
        };
        Some(Purse {
            share: plan.share?,
            call_ns: FOLLOWED_NS + readings * clock::reading_ns(),
            accounts: RefCell::default(),
        })
    }

    /// Subtracts what threads spent, and distributes the savings among them.
    fn settle(&self, used: Duration, data: &Data, slabs: impl Iterator<Item = u32>) {
        let mut accounts = self.accounts.borrow_mut();
        let earned = used.saturating_sub(accounts.paid).as_nanos() as f64 * self.share;
        accounts.paid = used.max(accounts.paid);
        let mut spenders = Vec::new();
        for slab in slabs {
            let left = data.credit(slab);
            let had = *accounts.credits.entry(slab).or_insert(FIRST);
            if left != had || left == 0 {
                accounts.saved_ns -= had.saturating_sub(left) as f64 * self.call_ns;
                spenders.push(slab);
            }
        }
        let most = SAVED.as_nanos() as f64 * self.share;
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
    pub fn pay(&self) {
        self.thin();
        let (Some(purse), Some(link)) = (&self.purse, &self.target.link) else {
            return;
        };
        let data = link.data();
        purse.settle(self.target.fetch_cpu_time(), &data, data.entered());
    }

    /// Halves the budget if both the agent and the kernel spend it.
    pub(super) fn share_budget(&mut self) {
        const HALF: f64 = 0.5;
        let Some(throttle) = &mut self.throttle else {
            return;
        };
        if self.purse.is_some() || self.thinning.is_some() {
            throttle.leave(HALF);
        }
        if let Some(purse) = &mut self.purse {
            purse.share *= HALF;
        }
        if let Some(thinning) = &mut self.thinning {
            thinning.leave(HALF);
        }
    }

    /// Returns whether followed or recorded calls, waits, or the kernel's probes have a budget.
    pub fn has_budget(&self) -> bool {
        if self.thinning.is_some() && self.target.link.is_some() || self.is_throttled {
            return true;
        }
        let is_recorded = |counter: &Counter| is(counter, |follow| follow == Follow::Record);
        let mut counters = self.counters.iter();
        self.purse.is_some() && counters.any(|one| is_followed(one) || is_recorded(one))
    }

    pub(super) fn follows(&self) -> bool {
        self.counters.iter().chain(&self.gates).any(is_followed)
    }
}

fn is_followed(counter: &Counter) -> bool {
    is(counter, Follow::is_followed)
}

fn is(counter: &Counter, what: impl Fn(Follow) -> bool) -> bool {
    matches!(counter.source, Source::Agent { follow, .. } if what(follow))
}
