//! Memory for trampolines: which is free, which is open, and how it is handed out.
//!
//! An arena is 64 KiB at a multiple of 64 KiB:
//!
//! | offset | content |
//! | --- | --- |
//! | 0 | the gate page: its first word is wiped on fork; 0 means do nothing |
//! | 4096 | thunk to the cold entry: `jmp *(%rip)` and the address |
//! | 4112 | thunks to the agent's other entries |
//! | 4176 | what unwinders are told of these |
//! | behind | trampolines from below; from above what unwinders are told of each |
//! | 61440 | where that is, and the words of trampolines: see [`tiptoe_wire::arena`] |

use std::collections::BTreeSet;
use std::ops::Range;

use tiptoe_wire::arena::{BLOCK, INDEX, PROLOGUE, PROLOGUE_TOLD, UNIT, caller};

use crate::code::To;
use crate::displacement::{BANDS, ByteSet, Displacement};
use crate::trampoline::Abi;
use crate::unwind::Told;

/// The length, and the alignment, of an arena.
pub const ARENA_LEN: u64 = tiptoe_wire::arena::LEN;

const COLD: u64 = PROLOGUE;
const HOOK: u64 = COLD + 16;
const SLOW: u64 = HOOK + 16;
const TIME: u64 = SLOW + 16;
const FUTEX: u64 = TIME + 16;
const CODE: u64 = PROLOGUE_TOLD + 80;
/// Where trampolines, and what is told of them, end.
const END: u64 = INDEX;
/// Behind the gate word: the address of the table of return thunks.
const TABLE: u64 = 8;
/// Runs too short for any trampoline are not kept.
const SHORTEST: u64 = 32;
/// An arena without so much in one piece is filled up only where no other can be had, but with
/// what is short, as counts are: what goes into the ends of many lies in as many pages, on the
/// same few lines of a cache.
const ROOMY: u64 = 2048;
const SHORT: u64 = 128;
/// More than this are never opened.
const MOST: usize = 4096;
/// Granules looked at in one free range and band before giving it up.
const TRIES: usize = 1024;
/// Below this the kernel maps nothing.
const LOWEST: u64 = 0x1_0000;

/// An arena that exists already, from an attach before this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedArena {
    /// Its first byte.
    pub base: u64,
    /// The address ranges that trampolines hold in it.
    pub used: Vec<Range<u64>>,
}

/// Where arenas may be.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Free address ranges where nothing is expected to grow.
    pub preferred: Vec<Range<u64>>,
    /// Free ranges to use when no other will do: where the heap would grow.
    pub last_resort: Vec<Range<u64>>,
    /// Arenas that are mapped already.
    pub arenas: Vec<UsedArena>,
}

/// An arena to map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Its first byte: the gate word.
    pub base: u64,
    /// Its length in bytes.
    pub len: u64,
    /// The bytes at `base + 4096`.
    pub prologue: Vec<u8>,
}

impl Arena {
    fn new(base: u64, abi: &Abi) -> Arena {
        let mut prologue = Vec::new();
        let entries = [
            abi.cold_entry,
            abi.hook_entry,
            abi.slow_entry,
            abi.time_entry,
            abi.futex_entry,
        ];
        for entry in entries {
            prologue.extend_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
            prologue.extend_from_slice(&entry.to_le_bytes());
            prologue.extend_from_slice(&[0xcc, 0xcc]);
        }
        let told = Told::called(prologue.len());
        prologue.extend(told.at(base + PROLOGUE_TOLD, base + PROLOGUE));
        debug_assert!(prologue.len() as u64 <= CODE - PROLOGUE);
        Arena {
            base,
            len: ARENA_LEN,
            prologue,
        }
    }
}

/// The address that a link goes to from within the trampoline at `at`.
pub(crate) fn resolve(at: u64, to: To) -> u64 {
    let base = base_of(at);
    match to {
        To::Address(address) => address,
        To::Gate => base,
        To::Cold => base + COLD,
        To::Hook => base + HOOK,
        To::Slow => base + SLOW,
        To::Time => base + TIME,
        To::Futex => base + FUTEX,
        To::Table => base + TABLE,
        To::Caller(way) => caller(at, way),
    }
}

/// The arena that holds an address.
pub(crate) fn base_of(address: u64) -> u64 {
    address & !(ARENA_LEN - 1)
}

/// What a trampoline asks of its address.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    /// What displacements are relative to.
    pub(crate) origin: u64,
    /// The displacements with a trap byte on each head.
    pub(crate) any: Displacement,
    /// Those whose last byte may trap only with one more behind it, too.
    pub(crate) pairs: Displacement,
    /// The lowest and highest address that its links allow.
    pub(crate) reach: (u64, u64),
    /// Its length.
    pub(crate) len: u64,
    /// How many bytes are told of it: a multiple of [`UNIT`].
    pub(crate) told: u64,
}

/// Room for a trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where it goes.
    pub(crate) at: u64,
    /// Where what is told of it goes, in the same arena.
    pub(crate) told: u64,
}

impl Want {
    /// The lowest allowed start in `range`, all bytes inside it.
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
    /// Unused runs, in order.
    free: Vec<Range<u64>>,
}

impl Open {
    fn new(base: u64, used: &[Range<u64>]) -> Open {
        let whole = base + CODE..base + END;
        let free = vec![whole];
        let mut open = Open { base, free };
        used.iter().for_each(|used| open.take(used));
        open
    }

    fn find(&self, want: &Want, allowed: &Displacement) -> Option<Place> {
        let whole = self.free.first()?.start..self.free.last()?.end;
        want.in_range(&whole, allowed)?;
        let told = self.highest(want.told)?;
        let mut free = self.free.iter();
        let at = free.find_map(|run| {
            let below = run.start..run.end.min(told.max(run.start));
            let above = run.start.max(told + want.told)..run.end;
            let found = want.in_range(&below, allowed);
            found.or_else(|| want.in_range(&above, allowed))
        })?;
        Some(Place { at, told })
    }

    /// Whether there is room for more than one or two.
    fn is_roomy(&self) -> bool {
        self.free.iter().any(|run| run.end - run.start >= ROOMY)
    }

    /// The highest place for bytes that are told.
    fn highest(&self, len: u64) -> Option<u64> {
        self.free.iter().rev().find_map(|run| {
            let start = run.end.checked_sub(len)? & !(UNIT - 1);
            (start >= run.start).then_some(start)
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

/// All arenas, and the ranges where more may be opened.
#[derive(Debug)]
pub(crate) struct Arenas {
    open: Vec<Open>,
    bases: BTreeSet<u64>,
    preferred: Vec<Range<u64>>,
    last_resort: Vec<Range<u64>>,
    fresh: Vec<u64>,
}

impl Arenas {
    pub(crate) fn new(space: Space) -> Arenas {
        let sorted = |mut ranges: Vec<Range<u64>>| {
            ranges.retain_mut(|r| {
                r.start = r.start.max(LOWEST);
                r.start < r.end
            });
            ranges.sort_unstable_by_key(|r| r.start);
            ranges
        };
        Arenas {
            bases: space.arenas.iter().map(|a| a.base).collect(),
            open: space
                .arenas
                .iter()
                .map(|a| Open::new(a.base, &a.used))
                .collect(),
            preferred: sorted(space.preferred),
            last_resort: sorted(space.last_resort),
            fresh: Vec::new(),
        }
    }

    /// Those opened since the last call.
    pub(crate) fn take_fresh(&mut self, abi: &Abi) -> Vec<Arena> {
        self.fresh
            .drain(..)
            .map(|base| Arena::new(base, abi))
            .collect()
    }

    /// Reserves room and returns its address: trap bytes alone before those in pairs, open
    /// arenas before new ones, the heap's way last.
    pub(crate) fn place(&mut self, mut want: Want) -> Option<Place> {
        want.narrow_to_jump();
        want.len = want.len.max(BLOCK);
        let (any, pairs) = (want.any, want.pairs);
        let place = self
            .in_open(&want, &any)
            .or_else(|| self.in_new(&want, &any, false))
            .or_else(|| self.in_end(&want, &any))
            .or_else(|| self.in_end(&want, &pairs))
            .or_else(|| self.in_new(&want, &pairs, false))
            .or_else(|| self.in_new(&want, &any, true))?;
        self.hold(&want, place);
        Some(place)
    }

    fn in_open(&self, want: &Want, allowed: &Displacement) -> Option<Place> {
        let arenas = self.open.iter();
        let mut roomy = arenas.filter(|arena| want.len < SHORT || arena.is_roomy());
        roomy.find_map(|arena| arena.find(want, allowed))
    }

    /// In what is left of one.
    fn in_end(&self, want: &Want, allowed: &Displacement) -> Option<Place> {
        self.open.iter().find_map(|arena| arena.find(want, allowed))
    }

    fn in_new(&self, want: &Want, allowed: &Displacement, last_resort: bool) -> Option<Place> {
        if self.open.len() >= MOST {
            return None;
        }
        let ranges = if last_resort {
            &self.last_resort
        } else {
            &self.preferred
        };
        let top = allowed.0[3];
        let bands = BANDS
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

    /// A place in a new arena that lies in a free range and begins in a band.
    fn granule(
        &self,
        want: &Want,
        allowed: &Displacement,
        free: &Range<u64>,
        band: &Range<u64>,
    ) -> Option<Place> {
        let end = free.end.min(band.end.saturating_add(want.len));
        let mut from = free.start.max(band.start);
        for _ in 0..TRIES {
            let at = want.in_range(&(from..end), allowed)?;
            let base = base_of(at);
            let told = base + END - want.told;
            let code = base + CODE..told;
            let room = at >= code.start && at + want.len <= code.end;
            let end = base + ARENA_LEN;
            let free = base >= free.start && end <= free.end && !self.bases.contains(&base);
            if room && free {
                return Some(Place { at, told });
            }
            from = if at < code.start && free {
                code.start
            } else {
                end + CODE
            };
        }
        None
    }

    fn hold(&mut self, want: &Want, place: Place) {
        let base = base_of(place.at);
        if self.bases.insert(base) {
            self.open.push(Open::new(base, &[]));
            self.fresh.push(base);
        }
        let arena = self.open.iter_mut().find(|a| a.base == base);
        let arena = arena.expect("just opened");
        arena.take(&(place.at..place.at + want.len));
        arena.take(&(place.told..place.told + want.told));
    }
}

/// The addresses that a displacement with the given top byte reaches.
fn band(origin: u64, top: u8) -> Range<u64> {
    let start = origin.saturating_add_signed(i64::from(i32::from(top) << 24));
    start..start.saturating_add(1 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: u64 = 0x5555_0000_0005;

    fn want(heads: &[u8]) -> Want {
        Want {
            origin: SITE,
            any: Displacement::over(heads, ByteSet::TRAPS),
            pairs: Displacement::over(heads, ByteSet::TRAPS),
            reach: (0, u64::MAX),
            len: 64,
            told: 128,
        }
    }

    fn arenas(preferred: Range<u64>, last_resort: Range<u64>) -> Arenas {
        let (preferred, last_resort) = (vec![preferred], vec![last_resort]);
        Arenas::new(Space {
            preferred,
            last_resort,
            arenas: Vec::new(),
        })
    }

    #[test]
    fn every_place_has_trap_bytes_on_its_heads() {
        let mut arenas = arenas(SITE - (2 << 30)..SITE - 5, 0..0);
        for heads in [
            &[][..],
            &[1],
            &[2],
            &[3],
            &[4],
            &[1, 4],
            &[2, 4],
            &[1, 2, 3, 4],
        ] {
            let at = arenas.place(want(heads)).expect("room").at;
            let bytes = (at.wrapping_sub(SITE) as u32).to_le_bytes();
            for &head in heads {
                let byte = bytes[usize::from(head) - 1];
                assert!(ByteSet::TRAPS.contains(byte), "{heads:?}: {byte:#x}");
            }
        }
    }

    #[test]
    fn places_never_overlap() {
        let mut arenas = arenas(SITE - (2 << 30)..SITE - 5, 0..0);
        let mut places: Vec<(u64, u64)> = (0..4000u64)
            .map(|i| {
                let origin = SITE + 32 * i;
                let heads = [&[1u8][..], &[2, 4], &[], &[3]][i as usize % 4];
                let moved = Want {
                    origin,
                    ..want(heads)
                };
                arenas.place(moved).expect("room")
            })
            .flat_map(|place| [(place.at, 64), (place.told, 128)])
            .collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
        let inside = |at: u64| (CODE..END).contains(&(at % ARENA_LEN));
        assert!(
            places
                .iter()
                .all(|(at, len)| inside(*at) && inside(at + len - 1))
        );
    }

    #[test]
    fn the_heap_is_spared_while_there_is_another_place() {
        let (low, high) = (SITE + (1 << 28), SITE + (0x60 << 24));
        let mut both = arenas(high..high + (1 << 28), low..high);
        assert!(both.place(want(&[4])).expect("room").at >= high);
        let mut only = arenas(0..0, low..high);
        assert!(only.place(want(&[4])).expect("room").at < high);
    }

    #[test]
    fn an_arena_of_before_is_used_on() {
        let base = base_of(SITE - (1 << 28));
        let first = base + CODE..base + CODE + 100;
        let used = vec![first];
        let space = Space {
            arenas: vec![UsedArena { base, used }],
            ..Space::default()
        };
        let mut arenas = Arenas::new(space);
        let place = arenas.place(want(&[])).expect("room");
        assert_eq!(
            (place.at, place.told),
            (base + CODE + 100, base + END - 128)
        );
        let abi = Abi::default();
        assert!(arenas.take_fresh(&abi).is_empty());
    }

    #[test]
    fn no_room_is_no_place() {
        assert_eq!(arenas(0..0, 0..0).place(want(&[])), None);
        let far = SITE + (3 << 30);
        assert_eq!(arenas(far..far + (1 << 30), 0..0).place(want(&[])), None);
    }
}
