//! Switches off traps that are hit too often, because their hits cost thousands of times as much as those of a jump.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use tiptoe_session::{FunctionNote, Note};
use tiptoe_wire::{Site, State};

use super::{AgentCounter, Patches};
use crate::counts;
use crate::tracee::TracedProcess;

/// The most hits of a trap per second. At 3.3 us each (`tiptoe bench uprobe`) they cost 3.3% of a core.
const MOST_A_SECOND: f64 = 10_000.0;
/// The shortest time over which a rate is averaged.
pub const WINDOW: Duration = Duration::from_millis(100);

#[derive(Default)]
pub struct Meters {
    /// The time of the last look, and each trap's count by slot (the index of its counter).
    last: Option<(Instant, BTreeMap<u32, u64>)>,
    /// How long each switched-off slot had counted, in ns.
    off: BTreeMap<u32, u64>,
}

impl Meters {
    pub fn ran_ns(&self, slot: u32) -> Option<u64> {
        self.off.get(&slot).copied()
    }

    /// Returns the slots that were hit too often since the last look.
    fn look(&mut self, now: Instant, counts: BTreeMap<u32, u64>) -> Vec<u32> {
        let Some((then, before)) = &self.last else {
            self.last = Some((now, counts));
            return Vec::new();
        };
        let passed = now.duration_since(*then);
        if passed < WINDOW {
            return Vec::new();
        }
        let most = (MOST_A_SECOND * passed.as_secs_f64()) as u64;
        let hits = |(slot, count): (&u32, &u64)| {
            let earlier = before.get(slot).copied().unwrap_or(*count);
            (count.wrapping_sub(earlier) > most).then_some(*slot)
        };
        let hot = counts.iter().filter_map(hits).collect();
        self.last = Some((now, counts));
        hot
    }

    pub fn switch_off_hot(&mut self, process: &TracedProcess, patches: &Patches) -> Vec<Note> {
        let traps = self.live_traps(process, patches);
        let hot_slots = match trap_counts(process, &traps) {
            Some(counts) => self.look(Instant::now(), counts),
            None => return Vec::new(),
        };
        let hot = traps.into_iter();
        let hot: Vec<&AgentCounter> = hot
            .filter(|one| hot_slots.contains(&one.site.slot))
            .collect();
        let addresses: Vec<u64> = hot.iter().map(|one| one.site.address).collect();
        let done = match &process.target.link {
            Some(link) if !hot.is_empty() => link.disarm(&addresses).unwrap_or_default(),
            _ => return Vec::new(),
        };
        let off = hot.into_iter().zip(done);
        let off = off.filter_map(|(trap, outcome)| (outcome == 0).then_some(trap));
        let off: Vec<&AgentCounter> = off.collect();
        self.note_off(process, &off)
    }

    fn note_off(&mut self, process: &TracedProcess, off: &[&AgentCounter]) -> Vec<Note> {
        let ran = process.since.elapsed().as_nanos() as u64;
        let counts = trap_counts(process, off).unwrap_or_default();
        let note = |one: &&AgentCounter| {
            self.off.insert(one.site.slot, ran);
            let hits = counts.get(&one.site.slot).copied().unwrap_or(0);
            let event = one.counter.event.clone();
            FunctionNote::TrapSwitchedOff { event, hits }.into()
        };
        off.iter().map(note).collect()
    }

    /// Returns no traps if the agent (tiptoe's library) does not answer any more.
    fn live_traps<'p>(
        &self,
        process: &TracedProcess,
        patches: &'p Patches,
    ) -> Vec<&'p AgentCounter> {
        let there = process.target.link.as_ref().is_some_and(|link| {
            process.presence.left.get().is_none()
                && link.data().state() != State::Dormant
                && !link.has_lost_target()
        });
        let traps = patches.counters.iter().filter(|one| there && one.trap);
        let live = traps.filter(|one| self.ran_ns(one.site.slot).is_none());
        live.collect()
    }
}

fn trap_counts(process: &TracedProcess, traps: &[&AgentCounter]) -> Option<BTreeMap<u32, u64>> {
    let link = process.target.link.as_ref()?;
    let slots = || traps.iter().flat_map(|one| one.site.entries());
    let range: Range<u32> = slots().min()?..slots().max()? + 1;
    let start = range.start;
    let sums = counts::sums(link.data_file(), link.geometry(), range).ok()?;
    let count = |slot: u32| sums.get((slot - start) as usize).copied().unwrap_or(0);
    let all = |site: &Site| site.entries().map(count).fold(0, u64::wrapping_add);
    let counts = traps.iter().map(|one| (one.site.slot, all(&one.site)));
    Some(counts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(window: Duration, hits: u64, is_hot: bool) {
        let mut meters = Meters::default();
        let start = Instant::now();
        assert!(meters.look(start, BTreeMap::from([(7, 5)])).is_empty());
        let hot = meters.look(
            start + window,
            BTreeMap::from([(7, 5 + hits), (9, 1 << 40)]),
        );
        assert_eq!(
            hot,
            if is_hot { vec![7] } else { vec![] },
            "{hits} in {window:?}"
        );
    }

    #[test]
    fn a_trap_is_hot_above_the_stated_rate_over_a_whole_window() {
        check(WINDOW, 1_000, false);
        check(WINDOW, 1_001, true);
        check(WINDOW * 3, 3_000, false);
        check(WINDOW * 3, 3_001, true);
        check(WINDOW / 2, 1 << 40, false);
    }
}
