//! Who goes first where the slots do not hold all.
//!
//! Pinned groups first: those that count already, then the system's, then labels' from the outermost on, then the
//! task's. Flexible groups are in **one** order, whosever they are: by the share of the time in which they could have
//! counted that they did count, the least first. That is how long ago each ran, in its own time: a cgroup that runs for
//! 0.1 ms in each 100 did not count for 99.9, but missed nothing by that. One that runs for the first time is taken to have
//! had an even share. By the plain time of the last turn such
//! cgroups would always be first, and if there are enough of them the system's events never have a turn; leaving the
//! system's events on, and letting cgroups have what is left, is as unfair the other way round.
//!
//! The slots are given out in this order, and only who loses or gains a place is touched. At a *change* (a switch, a
//! group that comes or goes) those that count keep their places until they are ahead by [`LEAD`], as a switch may come
//! each few microseconds; at a *turn* they do not.

use alloc::vec::Vec;

use crate::group::{Group, WHOLE};
use crate::set::Set;
use crate::unit::Unit;
use crate::{Pmu, State};

/// How much larger the share of those that count may be than that of those who wait, between two turns.
const LEAD: u32 = WHOLE / 64;

/// Why places are given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// Something changed.
    Change,
    /// Nothing did, but it is time for others.
    Turn,
}

/// In which set a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    System,
    Home(u32),
    Task,
}

/// A group that can count now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    rank: Rank,
    pub(crate) place: Place,
    group: u32,
    is_chosen: bool,
}

/// Smaller is earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_flexible: bool,
    /// Of a flexible group.
    share: u32,
    /// Not at a turn.
    gives_way: bool,
    /// The system's, labels from the outermost on, the task's.
    level: u32,
    number: u32,
}

impl Candidate {
    pub(crate) fn is_pinned(&self) -> bool {
        !self.rank.is_flexible
    }

    /// Its place in its set.
    pub(crate) fn group(&self) -> usize {
        self.group as usize
    }
}

impl<P: Pmu> Unit<P> {
    /// All that can count now, in order. The room is to be given back as `self.order`.
    pub(crate) fn ordered(&mut self, now_ns: u64, why: Settle) -> Vec<Candidate> {
        let mut order = core::mem::take(&mut self.order);
        order.clear();
        let now = Now {
            now_ns,
            even: self.even_share(),
            why,
        };
        now.push(&mut order, &mut self.system, Place::System, 0);
        let mut at = self.here;
        while let Some(home) = at {
            let level = self.homes.depth(home) + 1;
            let set = self.homes.set_mut(home);
            now.push(&mut order, set, Place::Home(home), level);
            at = self.homes.up(home);
        }
        now.push(&mut order, &mut self.task, Place::Task, u32::MAX);
        order.sort_unstable_by_key(|candidate| candidate.rank);
        order
    }

    /// The part of the time that each flexible group would count if all that are here now had the same.
    fn even_share(&self) -> u32 {
        let pinned = self.sum(|set| set.pinned);
        let wanted = u64::from(self.sum(|set| set.wanted) - pinned);
        let room = u64::from(self.pmu.slots().saturating_sub(pinned));
        let share = (room * u64::from(WHOLE)).checked_div(wanted);
        share.map_or(WHOLE, |share| share.min(u64::from(WHOLE)) as u32)
    }

    /// Gives out the slots in order; only who loses or gains a place is touched. All that is pinned fits.
    pub(crate) fn place_by_order(&mut self, now_ns: u64, why: Settle) {
        let mut order = self.ordered(now_ns, why);
        let mut room = self.pmu.slots();
        for candidate in &mut order {
            let (set, _) = self.at_place(candidate.place);
            let left = room.checked_sub(set.at(candidate.group()).weight());
            candidate.is_chosen = left.is_some();
            room = left.unwrap_or(room);
        }
        for candidate in order.iter().filter(|candidate| !candidate.is_chosen) {
            let (set, pmu) = self.at_place(candidate.place);
            set.take_out(candidate.group(), now_ns, pmu);
        }
        for (rank, candidate) in order.iter().enumerate() {
            let goes_on = !candidate.is_chosen || self.put_in(candidate, now_ns);
            // Flexible ones move each other at turns only.
            if !goes_on && (candidate.is_pinned() || why == Settle::Turn) {
                self.put_in_for_others(&order[rank..], now_ns);
            }
        }
        order.clear();
        self.order = order;
    }

    /// Whether the group counts now.
    fn put_in(&mut self, candidate: &Candidate, now_ns: u64) -> bool {
        let (set, pmu) = self.at_place(candidate.place);
        set.at(candidate.group()).is_running() || set.put_in(candidate.group(), now_ns, pmu)
    }

    /// There are slots for the first, but the PMU wants others: flexible ones behind it make room, from the last on. They
    /// have their own try later.
    #[cold]
    fn put_in_for_others(&mut self, order: &[Candidate], now_ns: u64) {
        let Some((first, behind)) = order.split_first() else {
            return;
        };
        for last in behind.iter().rev().filter(|last| !last.is_pinned()) {
            let (set, pmu) = self.at_place(last.place);
            if set.at(last.group()).is_running() {
                set.take_out(last.group(), now_ns, pmu);
                if self.put_in(first, now_ns) {
                    return;
                }
            }
        }
        if first.is_pinned() {
            let (set, _) = self.at_place(first.place);
            set.rest_at(first.group(), State::Error, now_ns);
        }
    }
}

/// When groups are put in order, and why.
struct Now {
    now_ns: u64,
    even: u32,
    why: Settle,
}

impl Now {
    /// The groups of one set that take part.
    fn push(&self, order: &mut Vec<Candidate>, set: &mut Set, place: Place, level: u32) {
        if set.wanted == 0 {
            return;
        }
        let own_ns = set.own_ns(self.now_ns);
        for (at, group) in set.groups_mut().filter(|(_, group)| group.is_wanted()) {
            order.push(Candidate {
                rank: self.rank(group, own_ns, level),
                place,
                group: at as u32,
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
            (true, Settle::Turn) => (share(), is_running),
            (true, Settle::Change) => (share().saturating_sub(lead), !is_running),
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
