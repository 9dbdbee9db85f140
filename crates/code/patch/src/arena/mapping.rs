//! Chooses the ranges to map for arenas (memory for trampolines), and places callers' arenas.

use std::ops::Range;

use tiptoe_wire::arena::CALLER_BYTES;

use super::{ARENA_LEN, Arenas, TRIES, base_of};

/// A trampoline reaches each word closer than this to its start.
const REACH: u64 = (1 << 31) - ARENA_LEN;

/// An arena for callers' return addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerArena {
    /// Its address.
    pub base: u64,
    /// Number of used bytes, from the first on.
    pub used: u64,
}

impl CallerArena {
    fn take(&mut self, near: u64) -> Option<u64> {
        let fits = self.used + CALLER_BYTES <= ARENA_LEN && self.base.abs_diff(near) < REACH;
        fits.then(|| {
            self.used += CALLER_BYTES;
            self.base + self.used - CALLER_BYTES
        })
    }
}

impl Arenas {
    /// Returns the ranges to map. Arenas in one free range share a mapping, because each mapping makes a fork slower.
    /// Below 4 GiB only adjacent arenas do, because a program may need the addresses between arenas for 32-bit
    /// pointers.
    pub(crate) fn fresh_ranges(&self) -> Vec<Range<u64>> {
        const LOW: u64 = 1 << 32;
        let is_mapped = |base: u64| self.space.mapped.iter().any(|range| range.contains(&base));
        let mut bases: Vec<u64> = self.fresh.clone();
        bases.retain(|base| !is_mapped(*base));
        bases.sort_unstable();
        let free = self.space.preferred.iter().chain(&self.space.last_resort);
        let free: Vec<&Range<u64>> = free.collect();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for base in bases {
            let end = base + ARENA_LEN;
            let is_free = |gap: &Range<u64>| {
                let callers = self.space.callers.iter();
                free.iter()
                    .any(|r| r.start <= gap.start && gap.end <= r.end)
                    && !callers.clone().any(|callers| gap.contains(&callers.base))
            };
            match ranges.last_mut() {
                Some(last) if base >= LOW && is_free(&(last.end..base)) => last.end = end,
                Some(last) if last.end == base => last.end = end,
                _ => ranges.push(base..end),
            }
        }
        ranges
    }

    pub(super) fn callers_near(&mut self, at: u64) -> Option<u64> {
        let found = self
            .space
            .callers
            .iter_mut()
            .find_map(|arena| arena.take(at));
        found.or_else(|| {
            let base = self.free_near(at)?;
            self.bases.insert(base);
            self.space.callers.push(CallerArena { base, used: 0 });
            self.space.callers.last_mut()?.take(at)
        })
    }

    fn free_near(&self, at: u64) -> Option<u64> {
        let free = self.space.preferred.iter().chain(&self.space.last_resort);
        let mut free = free.filter(|range| !self.space.mapped.contains(range));
        free.find_map(|range| {
            let start = range
                .start
                .max(at.saturating_sub(REACH))
                .next_multiple_of(ARENA_LEN);
            let end = range.end.min(at.saturating_add(REACH));
            let count = end.checked_sub(start)? / ARENA_LEN;
            let chosen = start + self.space.seed % count.max(1) * ARENA_LEN;
            let bases = [chosen, start].map(|from| (from..end).step_by(ARENA_LEN as usize));
            let mut bases = bases.into_iter().flat_map(|bases| bases.take(TRIES));
            bases.find(|base| {
                base + ARENA_LEN <= end && base_of(at) != *base && !self.bases.contains(base)
            })
        })
    }
}
