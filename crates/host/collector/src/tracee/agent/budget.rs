//! Keeps followed and recorded calls within the budget. Each thread has a *credit* of such calls in its slab (the
//! thread's counters). The run's loop refills the credit from the budget's share of the process's CPU time. Without
//! credit, calls are only counted.
//!
//! A thread decrements its credit without atomics, so it may overwrite a refill. The next refill repairs this race.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use tiptoe_price::clock;
use tiptoe_wire::Data;

use crate::planner::Follow;
use crate::tracee::{INITIAL_CREDIT, Plan};

/// Unspent budget is kept, but at most the budget's share of this CPU time.
const MOST_SAVED: Duration = Duration::from_millis(200);
/// The cost of following or recording a call, without the readings of the clock.
const FOLLOWED_NS: f64 = 15.0;

pub struct CallBudget {
    pub share: f64,
    call_ns: f64,
    accounts: RefCell<Accounts>,
}

#[derive(Default)]
struct Accounts {
    cpu_time: Duration,
    /// The unspent budget. Negative while new threads spend their initial credit, which was not earned.
    saved_ns: f64,
    credits: BTreeMap<u32, u64>,
}

impl CallBudget {
    /// `used` is the process's CPU time so far. `None` if calls are only counted, or `--budget` is off.
    pub fn of(plan: &Plan, used: Duration) -> Option<CallBudget> {
        let clock_readings = match plan.follow() {
            Follow::No | Follow::Values | Follow::Gate => return None,
            Follow::Returns => 0.0,
            Follow::Record => 1.0,
            Follow::Times | Follow::TimedValues => 2.0,
        };
        Some(CallBudget {
            share: plan.request.budget_share()?,
            call_ns: FOLLOWED_NS + clock_readings * clock::reading_ns(),
            accounts: RefCell::new(Accounts {
                cpu_time: used,
                ..Accounts::default()
            }),
        })
    }

    /// Divides the unspent budget among the threads that spent credit since the last refill.
    pub fn refill(&self, used: Duration, data: &Data, slabs: impl Iterator<Item = u32>) {
        let mut accounts = self.accounts.borrow_mut();
        let earned = used.saturating_sub(accounts.cpu_time).as_nanos() as f64 * self.share;
        accounts.cpu_time = used.max(accounts.cpu_time);
        let mut spenders = Vec::new();
        for slab in slabs {
            let left = data.credit(slab);
            let had = *accounts.credits.entry(slab).or_insert(INITIAL_CREDIT);
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
