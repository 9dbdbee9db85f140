//! The *arenas*: memory near the program's code for trampolines (probes' generated code) and their unwind information.
//! [`tiptoe_wire::arena`] has the layout.

use core::ops::Range;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_wire::arena::{
    BLOCK, LEN, PROLOGUE_UNWIND, UNIT, WAYS, base, entry, prologue, unwind_info,
};
use tiptoe_wire::calls::HASH;
use tiptoe_wire::{Map, MapContent};

use tiptoe_sys::raw::Errno;

use crate::memory;

const BITS: u32 = 13;
/// The most arenas. At least half of the table stays free, so that every search ends at a free place.
const MOST: usize = 1 << (BITS - 1);
/// The most mapped ranges: one session's ranges of code, and the callers' arenas ([`CALLERS`]) of all sessions.
const RANGES: usize = 1024;
/// The flag in the length of a *callers' arena*, which stays writable for the return addresses of *followed* calls,
/// whose returns count, too.
const CALLERS: u64 = 1;
/// The most index blocks that one trampoline spans.
const FAR: u64 = 128;

/// A hash table of the bases of all arenas with a trampoline.
///
/// Relaxed throughout: only the agent's thread adds arenas, and does so before any other thread can have an address
/// there.
pub struct Arenas {
    bases: &'static [AtomicU64],
    /// The start and length of each mapped range; a start of 0 ends the list. A range is one callers' arena, or
    /// contains this session's arenas with unused memory between them.
    ranges: &'static [AtomicU64],
}

#[derive(Clone, Copy)]
pub struct UnwindRange {
    pub start: u64,
    pub end: u64,
    pub info: u64,
    pub direct: Option<TrampolineCalls>,
}

#[derive(Clone, Copy)]
pub struct TrampolineCalls {
    /// The addresses in the trampoline to which followed calls return.
    pub backs: [u64; WAYS],
    pub slot: u64,
    callers: u64,
}

impl UnwindRange {
    /// Returns the return addresses of the trampoline's first callers. Each address changes only once, from 0. `None`
    /// if no followed call returns into the trampoline itself.
    pub fn callers(&self) -> Option<&'static [AtomicU64; WAYS]> {
        let callers = self.direct?.callers;
        // SAFETY: tiptoe wrote this address into the trampoline's unwind information, which the program cannot write.
        // Callers' arenas stay writable for ever, and are used only as atomics.
        Some(unsafe { &*(callers as *const [AtomicU64; WAYS]) })
    }
}

impl Arenas {
    pub const WORDS: usize = (1 << BITS) + 2 * RANGES;

    pub fn new(words: &'static [AtomicU64]) -> Arenas {
        let (bases, ranges) = words.split_at_checked(1 << BITS).unwrap_or((words, &[]));
        Arenas { bases, ranges }
    }

    pub fn map(&self, map: &Map, code: Range<usize>) -> Result<(), Errno> {
        const EINVAL: Errno = Errno(22);
        let &Map { base, len, content } = map;
        let is_whole = self::base(base) == base && len > 0 && base.checked_add(len).is_some();
        let mut ranges = self.ranges.as_chunks().0.iter();
        let free = ranges.find(|[start, _]| start.load(Relaxed) == 0);
        let Some([start, length]) = free.filter(|_| is_whole) else {
            return Err(EINVAL);
        };
        let mark = match content {
            MapContent::Words => {
                memory::callers(base as usize, len as usize)?;
                CALLERS
            }
            MapContent::Code { offset } => {
                let from = code.start.checked_add(offset as usize).ok_or(EINVAL)?;
                let end = from.checked_add(len as usize).ok_or(EINVAL)?;
                if end > code.end {
                    return Err(EINVAL);
                }
                memory::code(from, base as usize, len as usize)?;
                0
            }
        };
        length.store(len | mark, Relaxed);
        start.store(base, Relaxed);
        Ok(())
    }

    /// Records a trampoline's arena; `false` if the table is full.
    pub fn add(&self, trampoline: u64) -> bool {
        let base = base(trampoline);
        let Some(word) = self.slot(base) else {
            return false;
        };
        if word.load(Relaxed) == base {
            return true;
        }
        let has_room = self.all().count() < MOST;
        if has_room {
            word.store(base, Relaxed);
        }
        has_room
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let bases = self.bases.iter().map(|word| word.load(Relaxed));
        bases.filter(|base| *base != 0)
    }

    fn mapped(&self) -> impl Iterator<Item = (u64, u64)> {
        let ranges = self.ranges.as_chunks().0.iter();
        let ranges = ranges.map(|[start, len]| (start.load(Relaxed), len.load(Relaxed)));
        ranges.take_while(|(start, _)| *start != 0)
    }

    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let arenas = self.all().map(|base| (base, LEN));
        let all = arenas.chain(self.mapped());
        all.map(|(base, len)| base as usize..(base + self::base(len)) as usize)
    }

    fn slots(&self, base: u64) -> impl Iterator<Item = &'static AtomicU64> {
        let first = (base / LEN).wrapping_mul(HASH) >> (u64::BITS - BITS);
        let halves = self.bases.split_at_checked(first as usize);
        let (before, after) = halves.unwrap_or((self.bases, &[]));
        after.iter().chain(before)
    }

    /// Returns an arena's word in the table, or the free word where its search ends.
    fn slot(&self, wanted: u64) -> Option<&'static AtomicU64> {
        let mut slots = self.slots(wanted);
        slots.find(|word| matches!(word.load(Relaxed), found if found == 0 || found == wanted))
    }

    /// Unmaps the session's arenas without a trampoline, where no thread can be. Callers' arenas stay.
    pub fn unmap_unused(&self) {
        let mut kept = self.ranges.as_chunks().0.iter();
        for (start, len) in self.mapped() {
            if len & CALLERS != 0 {
                if let Some([to, length]) = kept.next() {
                    to.store(start, Relaxed);
                    length.store(len, Relaxed);
                }
                continue;
            }
            let (mut from, end) = (start, start + len);
            let bases = (start..end).step_by(LEN as usize);
            for used in bases.filter(|base| self.hold(*base)).chain([end]) {
                if from < used {
                    memory::unmap(from as usize, (used - from) as usize);
                }
                from = used + LEN;
            }
        }
        kept.for_each(|[start, _]| start.store(0, Relaxed));
    }

    pub fn hold(&self, address: u64) -> bool {
        let slot = self.slot(base(address));
        slot.is_some_and(|word| word.load(Relaxed) != 0)
    }

    /// If followed calls return to `address` in a trampoline, returns the return address that the trampoline replaced,
    /// and the probe's slot (counter).
    pub fn returned(&self, address: u64) -> Option<(u64, u64)> {
        let range = self.unwind_range(address)?;
        let TrampolineCalls { backs, slot, .. } = range.direct?;
        let (_, caller) = backs
            .iter()
            .zip(range.callers()?)
            .find(|(back, _)| **back == address)?;
        // Relaxed: a thread returns to this address only after it has run the trampoline and read the caller's word.
        Some((caller.load(Relaxed), slot))
    }

    pub fn unwind_range(&self, address: u64) -> Option<UnwindRange> {
        if !self.hold(address) {
            return None;
        }
        let entries = prologue(address);
        let range = if (entries..entries + PROLOGUE_UNWIND).contains(&address) {
            read(entries + PROLOGUE_UNWIND)
        } else {
            let blocks = (0..=address % LEN / BLOCK).rev().take(FAR as usize);
            let mut ranges = blocks.filter_map(|block| in_index(base(address) + block * BLOCK));
            ranges.find(|range| range.start <= address)
        };
        range.filter(|range| address < range.end)
    }
}

fn in_index(block: u64) -> Option<UnwindRange> {
    // SAFETY: this is an arena's index, used only as atomics. tiptoe wrote it before any thread could reach the
    // trampoline.
    let unit = unsafe { &*(entry(block) as *const AtomicU16) }.load(Relaxed);
    let offset = u64::from(unit) * UNIT;
    (unit != 0 && offset < LEN).then(|| read(base(block) + offset))?
}

fn read(info: u64) -> Option<UnwindRange> {
    // SAFETY: the words are inside an arena, outside its index, readable and constant.
    let word = |offset: u64| unsafe { &*((info + offset) as *const AtomicU32) }.load(Relaxed);
    let at = |offset: u64| info.wrapping_add_signed((word(offset) as i32).into());
    let entries = word(unwind_info::ENTRIES).clamp(1, unwind_info::PARTS);
    let last = unwind_info::TABLE + u64::from(entries - 1) * unwind_info::ENTRY;
    let count = word(u64::from(word(last + 4)) + unwind_info::COUNT);
    Some(UnwindRange {
        start: at(unwind_info::TABLE),
        end: at(last) + u64::from(count),
        info,
        direct: (entries == unwind_info::PARTS).then(|| TrampolineCalls {
            backs: core::array::from_fn(|way| {
                at(unwind_info::TABLE + unwind_info::ENTRY * (1 + 2 * way as u64))
                    + unwind_info::RETURN
            }),
            slot: word(unwind_info::SLOT).into(),
            callers: u64::from(word(unwind_info::CALLERS))
                | u64::from(word(unwind_info::CALLERS + 4)) << 32,
        }),
    })
}
