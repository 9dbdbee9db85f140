//! The order in which groups of events get slots when not all fit.
//!
//! Pinned groups are first: those that already count, then those of the system, of labels (cgroups or scopes, the
//! outermost first) and of the task. All flexible groups are in **one** order, the smallest share first. A group's
//! share is the time in which it counted, divided by the time in which it was enabled. An order by the time of the last
//! turn would starve the system's events if many cgroups run seldom. Serving the system's groups first would starve
//! cgroups.
//!
//! Switches may happen every few microseconds, so at a *change* (a switch, or a group added or removed) a running group
//! keeps its slots until its share exceeds a waiting group's by [`LEAD`]. At a *turn*, every few ms, it loses its slots
//! to a waiting group with an equal share.

use alloc::vec::Vec;

use crate::candidate::{Candidate, Rank, ReassignCause, SetId};
use crate::group::{Group, WHOLE};
use crate::set::GroupSet;
use crate::unit::Unit;
use crate::{Pmu, State};

const LEAD: u32 = WHOLE / 64;

impl<P: Pmu> Unit<P> {
    /// Returns the candidates in order. The caller must store the vector in `self.order`; otherwise the next call
    /// allocates.
    pub(crate) fn ordered(&mut self, now_ns: u64, why: ReassignCause) -> Vec<Candidate> {
        let mut order = core::mem::take(&mut self.order);
        order.clear();
        let now = SortContext {
            now_ns,
            even: self.even_share(),
            why,
        };
        now.push(&mut order, &mut self.system, SetId::System, 0);
        let mut at = self.here;
        while let Some(home) = at {
            let level = self.homes.depth(home) + 1;
            let set = self.homes.set_mut(home);
            now.push(&mut order, set, SetId::Home(home), level);
            at = self.homes.up(home);
        }
        now.push(&mut order, &mut self.task, SetId::Task, u32::MAX);
        order.sort_unstable_by_key(|candidate| candidate.rank);
        order
    }

    fn even_share(&self) -> u32 {
        let pinned = self.sum(|set| set.pinned);
        let wanted = u64::from(self.sum(|set| set.wanted) - pinned);
        let room = u64::from(self.pmu.slots().saturating_sub(pinned));
        let share = (room * u64::from(WHOLE)).checked_div(wanted);
        share.map_or(WHOLE, |share| share.min(u64::from(WHOLE)) as u32)
    }

    /// The caller must ensure that all pinned groups fit.
    pub(crate) fn place_by_order(&mut self, now_ns: u64, why: ReassignCause) {
        let mut order = self.ordered(now_ns, why);
        let mut room = self.pmu.slots();
        for candidate in &mut order {
            let (set, _) = self.set_of(candidate.set);
            let left = room.checked_sub(set.at(candidate.group).weight());
            candidate.is_chosen = left.is_some();
            room = left.unwrap_or(room);
        }
        for candidate in order.iter().filter(|candidate| !candidate.is_chosen) {
            let (set, pmu) = self.set_of(candidate.set);
            set.take_out(candidate.group, now_ns, pmu);
        }
        for (rank, candidate) in order.iter().enumerate() {
            let counts = !candidate.is_chosen || self.put_in(candidate, now_ns);
            // At a change, a flexible group that the PMU refuses must not displace others.
            if !counts && (candidate.is_pinned() || why == ReassignCause::Turn) {
                self.evict_for_first(&order[rank..], now_ns);
            }
        }
        order.clear();
        self.order = order;
    }

    fn put_in(&mut self, candidate: &Candidate, now_ns: u64) -> bool {
        let (set, pmu) = self.set_of(candidate.set);
        set.at(candidate.group).is_running() || set.put_in(candidate.group, now_ns, pmu)
    }

    /// Removes flexible groups, from the end of `order`, until the PMU accepts the first group. The caller then adds
    /// removed groups where they fit.
    #[cold]
    fn evict_for_first(&mut self, order: &[Candidate], now_ns: u64) {
        let Some((first, rest)) = order.split_first() else {
            return;
        };
        for last in rest.iter().rev().filter(|last| !last.is_pinned()) {
            let (set, pmu) = self.set_of(last.set);
            if set.at(last.group).is_running() {
                set.take_out(last.group, now_ns, pmu);
                if self.put_in(first, now_ns) {
                    return;
                }
            }
        }
        if first.is_pinned() {
            let (set, _) = self.set_of(first.set);
            set.rest_at(first.group, State::Error, now_ns);
        }
    }
}

struct SortContext {
    now_ns: u64,
    even: u32,
    why: ReassignCause,
}

impl SortContext {
    fn push(&self, order: &mut Vec<Candidate>, set: &mut GroupSet, place: SetId, level: u32) {
        if set.wanted == 0 {
            return;
        }
        let own_ns = set.own_ns(self.now_ns);
        for (at, group) in set.groups_mut().filter(|(_, group)| group.is_wanted()) {
            order.push(Candidate {
                rank: self.rank(group, own_ns, level),
                set: place,
                group: at,
                is_chosen: false,
            });
        }
    }

    fn rank(&self, group: &mut Group, own_ns: u64, level: u32) -> Rank {
        let is_running = group.is_running();
        let is_flexible = !group.is_pinned();
        let lead = if is_running { LEAD } else { 0 };
        let mut share = || group.share(own_ns, self.now_ns, self.even);
        let (share, gives_way) = match (is_flexible, self.why) {
            (false, _) => (0, !is_running),
            (true, ReassignCause::Turn) => (share(), is_running),
            (true, ReassignCause::Change) => (share().saturating_sub(lead), !is_running),
        };
        Rank {
            is_flexible,
            share,
            gives_way,
            level,
            number: group.number,
        }
    }
}
