//! Hands out memory for trampolines, the code to which patched places jump.
//!
//! An arena is such memory near code ([`tiptoe_wire::arena`]). It begins with:
//!
//! | offset | content |
//! | --- | --- |
//! | 0 | jumps to entries of the agent, our library in the target: `jmp *(%rip)` and the address |
//! | 80 | the jumps' unwind information |
//! | 160 | the address of the gate byte, 0 in a forked child ([`AgentAddresses::gate`]) |
//! | 168 | the address of the table of thunks (followed calls return to them) |
//!
//! A *callers' arena*, of the same length, has return addresses that the agent writes (`by_itself`).

use std::collections::BTreeSet;
use std::ops::Range;

use tiptoe_wire::AgentAddresses;
use tiptoe_wire::arena::{
    BLOCK, INDEX, PROLOGUE_UNWIND, UNIT, base as base_of, prologue, rotation,
};

use crate::abi::Abi;
use crate::code::LinkTarget;
use crate::displacement::{BANDS, BELOW, ByteSet, Displacement};
use crate::unwind::UnwindInfo;

mod mapping;

pub use mapping::CallerArena;

/// An arena's length and alignment.
pub const ARENA_LEN: u64 = tiptoe_wire::arena::LEN;

const COLD: u64 = 0;
const HOOK: u64 = COLD + 16;
const SLOW: u64 = HOOK + 16;
const TIME: u64 = SLOW + 16;
const FUTEX: u64 = TIME + 16;
const GATE: u64 = PROLOGUE_UNWIND + 80;
const TABLE: u64 = GATE + 8;
const CODE: u64 = TABLE + 8;
const END: u64 = INDEX;
const HALF: u64 = ARENA_LEN / 2;
/// Shorter free runs fit no trampoline, so they are dropped.
const SHORTEST: u64 = 32;
/// Long trampolines prefer arenas with a free run of this length, because arenas' ends compete for the same cache sets.
const ROOMY: u64 = 2048;
const SHORT: u64 = 128;
const MOST: usize = 4096;
const TRIES: usize = 1024;
const LOWEST: u64 = 0x1_0000;

/// An earlier planner's arena.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedArena {
    /// Its address.
    pub base: u64,
    /// The ranges in use.
    pub used: Vec<Range<u64>>,
}

/// Where arenas may be.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Free ranges outside [`Space::last_resort`].
    pub preferred: Vec<Range<u64>>,
    /// Free ranges where the heap grows, or where the kernel maps next.
    pub last_resort: Vec<Range<u64>>,
    /// Mapped arenas that the caller can write.
    pub arenas: Vec<UsedArena>,
    /// Ranges mapped for [`Space::arenas`], used or not.
    pub mapped: Vec<Range<u64>>,
    /// Mapped callers' arenas.
    pub callers: Vec<CallerArena>,
    /// Chooses among free places. Must be unpredictable to attackers.
    pub seed: u64,
}

/// An arena to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Its address.
    pub base: u64,
    /// The bytes at [`prologue`].
    pub prologue: Vec<u8>,
}

impl Arena {
    fn new(base: u64, agent: &AgentAddresses) -> Arena {
        let mut bytes = Vec::new();
        let entries = [
            agent.cold_entry,
            agent.hook_entry,
            agent.slow_entry,
            agent.time_entry,
            agent.futex_entry,
        ];
        for entry in entries {
            bytes.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
            bytes.extend_from_slice(&entry.to_le_bytes());
            bytes.extend_from_slice(&[0xcc, 0xcc]);
        }
        let unwind = UnwindInfo::called(bytes.len());
        let at = prologue(base);
        bytes.extend(unwind.at(at + PROLOGUE_UNWIND, at, 0));
        debug_assert!(bytes.len() as u64 <= GATE);
        bytes.resize(GATE as usize, 0);
        bytes.extend(
            [agent.gate, agent.thunks]
                .map(u64::to_le_bytes)
                .as_flattened(),
        );
        Arena {
            base,
            prologue: bytes,
        }
    }
}

fn rooms(base: u64) -> impl Iterator<Item = Range<u64>> + Clone {
    let offsets = match rotation(base) {
        0 => [CODE..END, ARENA_LEN..ARENA_LEN],
        _ => [0..END - HALF, HALF + CODE..ARENA_LEN],
    };
    let rooms = offsets.into_iter().filter(|room| !room.is_empty());
    rooms.map(move |room| base + room.start..base + room.end)
}

pub(crate) fn resolve(room: &TrampolineRoom, to: LinkTarget) -> u64 {
    // The constants are offsets in an arena that is not rotated.
    let base = base_of(room.at) + rotation(room.at);
    match to {
        LinkTarget::Address(address) => address,
        LinkTarget::Gate => base + GATE,
        LinkTarget::Cold => base + COLD,
        LinkTarget::Hook => base + HOOK,
        LinkTarget::Slow => base + SLOW,
        LinkTarget::Time => base + TIME,
        LinkTarget::Futex => base + FUTEX,
        LinkTarget::Table => base + TABLE,
        LinkTarget::Caller(way) => room.callers + 8 * way as u64,
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RoomRequest {
    pub(crate) origin: u64,
    pub(crate) any: Displacement,
    /// `any`, plus displacements whose last byte traps only with the byte after the jump.
    pub(crate) pairs: Displacement,
    /// The lowest and highest address from which all relative fields reach their targets.
    pub(crate) reach: (u64, u64),
    pub(crate) len: u64,
    /// Length of the first part; most hits execute no more.
    pub(crate) hot: u64,
    pub(crate) unwind_len: u64,
    pub(crate) needs_callers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrampolineRoom {
    pub(crate) at: u64,
    pub(crate) unwind: u64,
    pub(crate) callers: u64,
}

impl RoomRequest {
    fn in_range(&self, range: &Range<u64>, allowed: &Displacement) -> Option<u64> {
        let from = range.start.max(self.reach.0);
        let last = range.end.checked_sub(self.len)?.min(self.reach.1);
        if from > last {
            return None;
        }
        let displacement = from.wrapping_sub(self.origin) as u32;
        let step = allowed.at_or_after(displacement)? - displacement;
        let start = from.checked_add(step.into())?;
        (start <= last).then_some(start)
    }

    fn narrow_to_jump(&mut self) {
        let low = self.origin.saturating_sub(1 << 31);
        let high = self.origin.saturating_add((1 << 31) - 1);
        self.reach = (self.reach.0.max(low), self.reach.1.min(high));
    }
}

#[derive(Debug)]
struct Open {
    base: u64,
    free: Vec<Range<u64>>,
}

impl Open {
    fn new(base: u64, used: &[Range<u64>]) -> Open {
        let free = rooms(base).collect();
        let mut open = Open { base, free };
        used.iter().for_each(|used| open.take(used));
        open
    }

    fn find(&self, want: &RoomRequest, allowed: &Displacement) -> Option<TrampolineRoom> {
        let whole = self.free.first()?.start..self.free.last()?.end;
        want.in_range(&whole, allowed)?;
        let unwind = self.highest(want.unwind_len)?;
        let mut free = self.free.iter();
        let at = free.find_map(|run| {
            let below = run.start..run.end.min(unwind.max(run.start));
            let above = run.start.max(unwind + want.unwind_len)..run.end;
            let found = want.in_range(&below, allowed);
            found.or_else(|| want.in_range(&above, allowed))
        })?;
        Some(TrampolineRoom {
            at,
            unwind,
            callers: 0,
        })
    }

    fn is_roomy(&self) -> bool {
        self.free.iter().any(|run| run.end - run.start >= ROOMY)
    }

    fn highest(&self, len: u64) -> Option<u64> {
        self.free.iter().rev().find_map(|run| {
            let start = run.end.checked_sub(len)? & !(UNIT - 1);
            // Offset 0 is excluded, because 0 in the arena's index means no trampoline.
            (start >= run.start && !start.is_multiple_of(ARENA_LEN)).then_some(start)
        })
    }

    fn take(&mut self, used: &Range<u64>) {
        let first = self.free.partition_point(|run| run.end <= used.start);
        let after = self.free.partition_point(|run| run.start < used.end);
        if first >= after {
            return;
        }
        let (start, end) = (self.free[first].start, self.free[after - 1].end);
        let left = [start..used.start, used.end..end];
        let kept = left
            .into_iter()
            .filter(|r| r.end.saturating_sub(r.start) >= SHORTEST);
        self.free.splice(first..after, kept.collect::<Vec<_>>());
    }
}

#[derive(Debug)]
pub(crate) struct Arenas {
    open: Vec<Open>,
    bases: BTreeSet<u64>,
    fresh: Vec<u64>,
    pub(crate) space: Space,
}

impl Arenas {
    pub(crate) fn new(mut space: Space) -> Arenas {
        space.preferred.extend(space.mapped.iter().cloned());
        for ranges in [&mut space.preferred, &mut space.last_resort] {
            ranges.retain_mut(|r| {
                r.start = r.start.max(LOWEST);
                r.start < r.end
            });
            ranges.sort_unstable_by_key(|r| r.start);
        }
        let callers = space.callers.iter().map(|callers| callers.base);
        Arenas {
            bases: space.arenas.iter().map(|a| a.base).chain(callers).collect(),
            open: space
                .arenas
                .iter()
                .map(|a| Open::new(a.base, &a.used))
                .collect(),
            fresh: Vec::new(),
            space,
        }
    }

    pub(crate) fn take_fresh(&mut self, abi: &Abi) -> Vec<Arena> {
        self.fresh
            .drain(..)
            .map(|base| Arena::new(base, &abi.agent))
            .collect()
    }

    /// Reserves room for a trampoline. Prefers places where the hot bytes touch few cache lines, then all others, then
    /// displacements that need a pair of trap bytes, then [`Space::last_resort`].
    pub(crate) fn reserve(&mut self, mut want: RoomRequest) -> Option<TrampolineRoom> {
        want.narrow_to_jump();
        want.len = want.len.max(BLOCK);
        let (any, pairs) = (want.any, want.pairs);
        let few = any.on_few_lines(want.origin, want.hot);
        let in_any = |allowed| {
            let room = self.in_open(&want, &allowed);
            room.or_else(|| self.in_new(&want, &allowed, &self.space.preferred))
        };
        let room = in_any(few)
            .or_else(|| in_any(any))
            .or_else(|| self.in_end(&want, &any))
            .or_else(|| self.in_end(&want, &pairs))
            .or_else(|| self.in_new(&want, &pairs, &self.space.preferred))
            .or_else(|| self.in_new(&want, &any, &self.space.last_resort))?;
        let callers = match want.needs_callers {
            true => self.callers_near(room.at)?,
            false => 0,
        };
        self.hold(&want, room);
        Some(TrampolineRoom { callers, ..room })
    }

    fn in_open(&self, want: &RoomRequest, allowed: &Displacement) -> Option<TrampolineRoom> {
        let arenas = self.open.iter();
        let mut roomy = arenas.filter(|arena| want.len < SHORT || arena.is_roomy());
        roomy.find_map(|arena| arena.find(want, allowed))
    }

    fn in_end(&self, want: &RoomRequest, allowed: &Displacement) -> Option<TrampolineRoom> {
        self.open.iter().find_map(|arena| arena.find(want, allowed))
    }

    fn in_new(
        &self,
        want: &RoomRequest,
        allowed: &Displacement,
        ranges: &[Range<u64>],
    ) -> Option<TrampolineRoom> {
        if self.open.len() >= MOST {
            return None;
        }
        let top = allowed.0[3];
        let bands = bands_from(self.space.seed)
            .into_iter()
            .filter(|&b| top.contains(b))
            .map(|b| band(want.origin, b));
        let everywhere = (top == ByteSet::ALL).then_some(0..u64::MAX);
        bands.chain(everywhere).find_map(|band| {
            let first = ranges.partition_point(|r| r.end <= band.start);
            let near = ranges[first..].iter().take_while(|r| r.start < band.end);
            near.filter_map(|r| self.granule(want, allowed, r, &band))
                .next()
        })
    }

    /// Returns a place in `band` (16 MiB with one top displacement byte), in a new arena in `free`. Searches from an
    /// address that the seed chooses, then from the start. Nearby patches have overlapping bands and the same seed, so
    /// their arenas become neighbours.
    fn granule(
        &self,
        want: &RoomRequest,
        allowed: &Displacement,
        free: &Range<u64>,
        band: &Range<u64>,
    ) -> Option<TrampolineRoom> {
        let end = free.end.min(band.end.saturating_add(want.len));
        let start = free.start.max(band.start).max(want.reach.0);
        let room = end
            .min(want.reach.1)
            .checked_sub(start)
            .filter(|room| *room > 0)?;
        let chosen = start + self.space.seed.wrapping_sub(start) % room;
        let mut froms = [chosen, start].into_iter();
        froms.find_map(|from| self.granule_from(want, allowed, from..end, free))
    }

    fn granule_from(
        &self,
        want: &RoomRequest,
        allowed: &Displacement,
        range: Range<u64>,
        free: &Range<u64>,
    ) -> Option<TrampolineRoom> {
        let mut from = range.start;
        for _ in 0..TRIES {
            let at = want.in_range(&(from..range.end), allowed)?;
            let base = base_of(at);
            let end = base + ARENA_LEN;
            let is_free = base >= free.start && end <= free.end && !self.bases.contains(&base);
            let mut code = rooms(base).map(|room| room.start.max(from)..room.end.min(range.end));
            if is_free && let Some(at) = code.find_map(|code| want.in_range(&code, allowed)) {
                let end = rooms(base).last()?.end;
                let is_clear = at + want.len <= end - want.unwind_len;
                let unwind_end = if is_clear { end } else { at & !(UNIT - 1) };
                return Some(TrampolineRoom {
                    at,
                    unwind: unwind_end - want.unwind_len,
                    callers: 0,
                });
            }
            from = end;
        }
        None
    }

    fn hold(&mut self, want: &RoomRequest, room: TrampolineRoom) {
        let base = base_of(room.at);
        if self.bases.insert(base) {
            self.open.push(Open::new(base, &[]));
            self.fresh.push(base);
        }
        let arena = self.open.iter_mut().find(|a| a.base == base);
        let arena = arena.expect("just opened");
        arena.take(&(room.at..room.at + want.len));
        arena.take(&(room.unwind..room.unwind + want.unwind_len));
    }
}

fn bands_from(seed: u64) -> [u8; BANDS.len()] {
    let mut bands = BANDS;
    let (below, _) = bands.split_at_mut(BELOW);
    below.rotate_left((seed >> 32) as usize % BELOW);
    bands
}

fn band(origin: u64, top: u8) -> Range<u64> {
    let start = origin.saturating_add_signed(i64::from(i32::from(top) << 24));
    start..start.saturating_add(1 << 24)
}

#[cfg(test)]
mod tests;
