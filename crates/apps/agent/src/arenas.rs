//! The memory of trampolines and their unwind information. [`tiptoe_wire::arena`] has the layout.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_wire::arena::{
    BLOCK, INDEX, LEN, PROLOGUE_UNWIND, UNIT, WAYS, base, caller, unwind_info,
};
use tiptoe_wire::calls::HASH;

use tiptoe_sys::raw::Errno;

use crate::memory;

/// The number of places for arenas, as a power of two.
const BITS: u32 = 13;
/// The most arenas. It is half of the places, so that a search always ends at a free one.
const MOST: usize = 1 << (BITS - 1);
/// Marks the place of an unmapped arena. It must not become 0, because arenas whose hash collided with it are stored
/// after it and must still be found.
const UNMAPPED: u64 = 1;
/// Marks the place of an arena in which a site has a trampoline.
const USED: u64 = 2;
/// The most blocks of a trampoline.
const FAR: u64 = 128;

/// All arenas of the process. An arena's base is at the place that its hash names or after it, so that any thread
/// finds it at once.
///
/// Relaxed throughout: only the agent's thread adds arenas, and a thread that looks up an address has run there or
/// has seen it on its stack.
pub struct Arenas {
    bases: &'static [AtomicU64],
    /// Whether calls are followed, in this session or an earlier one.
    follow: AtomicBool,
}

/// A range of code and its unwind information.
#[derive(Clone, Copy)]
pub struct UnwindRange {
    /// The address of its first byte.
    pub start: u64,
    /// The address after its last byte.
    pub end: u64,
    /// The address of its `.eh_frame_hdr`.
    pub info: u64,
    /// The calls that it follows by itself, if any.
    pub direct: Option<Direct>,
}

/// The calls that a trampoline follows by itself.
#[derive(Clone, Copy)]
pub struct Direct {
    /// The return addresses of these calls in the trampoline.
    pub backs: [u64; WAYS],
    /// The first of the probe's words.
    pub slot: u64,
}

impl UnwindRange {
    /// Returns the words with the program's return addresses, each 0 if not known yet; a word changes only from 0.
    /// `None` if the trampoline follows no calls by itself.
    pub fn callers(&self) -> Option<&'static [AtomicU64; WAYS]> {
        self.direct?;
        // SAFETY: the trampoline is in an arena, whose last page is ours, mapped writable for good, and used only as
        // atomic words.
        Some(unsafe { &*(caller(self.start, 0) as *const [AtomicU64; WAYS]) })
    }
}

impl Arenas {
    /// The number of words that the table needs.
    pub const WORDS: usize = 1 << BITS;

    /// Returns an empty table over zeroed words.
    pub fn new(bases: &'static [AtomicU64]) -> Arenas {
        let follow = AtomicBool::new(false);
        Arenas { bases, follow }
    }

    /// Makes the words of trampolines that follow calls writable, in existing and future arenas. Before that an arena
    /// is one mapping of code, or one with its neighbours, because each more mapping makes each fork of the program
    /// slower.
    pub fn let_callers_be_written(&self) -> bool {
        self.follow.store(true, Relaxed); // one thread maps arenas
        self.all()
            .all(|base| memory::let_callers_be_written(base as usize).is_ok())
    }

    /// Maps an arena.
    pub fn map(&self, base: u64) -> Result<(), Errno> {
        memory::arena(base as usize, LEN as usize)?;
        // Relaxed: only one thread maps arenas.
        match self.follow.load(Relaxed) {
            true => memory::let_callers_be_written(base as usize)
                .inspect_err(|_| memory::unmap(base as usize, LEN as usize)),
            false => Ok(()),
        }
    }

    /// Records a mapped arena. Returns false if the table is full.
    pub fn add(&self, base: u64) -> bool {
        if self.all().count() >= MOST {
            return false;
        }
        let mut places = self.places(base);
        let Some(free) = places.find(|word| word.load(Relaxed) <= UNMAPPED) else {
            return false;
        };
        free.store(base, Relaxed);
        true
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let bases = self.bases.iter().map(|word| base(word.load(Relaxed)));
        bases.filter(|base| *base != 0)
    }

    /// Returns the ranges of all arenas.
    pub fn ranges(&self) -> impl Iterator<Item = core::ops::Range<usize>> {
        self.all().map(|base| base as usize..(base + LEN) as usize)
    }

    /// Returns all places, starting at the one that an arena's hash names.
    fn places(&self, base: u64) -> impl Iterator<Item = &'static AtomicU64> {
        let first = (base / LEN).wrapping_mul(HASH) >> (u64::BITS - BITS);
        let halves = self.bases.split_at_checked(first as usize);
        let (before, behind) = halves.unwrap_or((self.bases, &[]));
        behind.iter().chain(before)
    }

    /// Returns the place of an arena, or the free one at which the search for it ends.
    fn place(&self, wanted: u64) -> Option<&'static AtomicU64> {
        let mut places = self.places(wanted);
        places.find(|word| {
            let word = word.load(Relaxed);
            word == 0 || base(word) == wanted
        })
    }

    /// Records that a trampoline at this address has a site, for [`Arenas::unmap_unused`].
    pub fn mark_used(&self, trampoline: u64) {
        let place = self.place(base(trampoline));
        if let Some(word) = place.filter(|word| word.load(Relaxed) != 0) {
            word.fetch_or(USED, Relaxed);
        }
    }

    /// Unmaps the arenas without a mark.
    pub fn unmap_unused(&self) {
        for word in self.bases {
            let now = word.load(Relaxed);
            if base(now) != 0 && now & USED == 0 {
                word.store(UNMAPPED, Relaxed);
                memory::unmap(base(now) as usize, LEN as usize);
            }
        }
    }

    /// Returns whether an arena contains an address.
    pub fn hold(&self, address: u64) -> bool {
        let place = self.place(base(address));
        place.is_some_and(|word| word.load(Relaxed) != 0)
    }

    /// Returns whether an arena contains a range.
    pub fn hold_range(&self, address: u64, len: u64) -> bool {
        let end = address.checked_add(len);
        end.is_some_and(|end| end <= base(address) + LEN) && self.hold(address)
    }

    /// Returns where a call that a trampoline follows by itself must return to, given its return address in the
    /// trampoline, and the first of its probe's words.
    pub fn returned(&self, address: u64) -> Option<(u64, u64)> {
        let range = self.unwind_range(address)?;
        let Direct { backs, slot } = range.direct?;
        let (_, caller) = backs
            .iter()
            .zip(range.callers()?)
            .find(|(back, _)| **back == address)?;
        // Relaxed: a thread that has the address has run there, and so has seen the word.
        Some((caller.load(Relaxed), slot))
    }

    /// Returns the unwind information of the code at an address.
    pub fn unwind_range(&self, address: u64) -> Option<UnwindRange> {
        if !self.hold(address) {
            return None;
        }
        let base = base(address);
        match address - base {
            INDEX.. => None,
            ..PROLOGUE_UNWIND => read(base + PROLOGUE_UNWIND),
            offset => {
                let blocks = (0..=offset / BLOCK).rev().take(FAR as usize);
                let mut ranges = blocks.filter_map(|block| in_index(base, block));
                ranges.find(|range| range.start <= address)
            }
        }
        .filter(|range| address < range.end)
    }
}

/// Returns the unwind information of the trampoline that begins in a block.
fn in_index(base: u64, block: u64) -> Option<UnwindRange> {
    // SAFETY: this is an arena's index. tiptoe wrote it before any thread could reach the trampoline, and it is used
    // only as atomics.
    let unit = unsafe { &*((base + INDEX + 2 * block) as *const AtomicU16) }.load(Relaxed);
    let info = base + u64::from(unit) * UNIT;
    (unit != 0 && info < base + INDEX).then(|| read(info))?
}

fn read(info: u64) -> Option<UnwindRange> {
    // SAFETY: the words are inside an arena, before its last page. All of it is readable, and what was written there
    // does not change.
    let word = |offset: u64| unsafe { &*((info + offset) as *const AtomicU32) }.load(Relaxed);
    // Offsets are relative to the beginning, and signed.
    let at = |offset: u64| info.wrapping_add_signed((word(offset) as i32).into());
    let entries = word(unwind_info::ENTRIES).clamp(1, unwind_info::PARTS);
    let last = unwind_info::TABLE + u64::from(entries - 1) * unwind_info::ENTRY;
    let count = word(u64::from(word(last + 4)) + unwind_info::COUNT);
    Some(UnwindRange {
        start: at(unwind_info::TABLE),
        end: at(last) + u64::from(count),
        info,
        direct: (entries == unwind_info::PARTS).then(|| Direct {
            backs: core::array::from_fn(|way| {
                at(unwind_info::TABLE + unwind_info::ENTRY * (1 + 2 * way as u64))
                    + unwind_info::RETURN
            }),
            slot: word(unwind_info::SLOT).into(),
        }),
    })
}
