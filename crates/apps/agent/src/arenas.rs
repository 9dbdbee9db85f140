//! The memory of trampolines and their unwind information. [`tiptoe_wire::arena`] has the layout.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_wire::arena::{
    BLOCK, INDEX, LEN, PROLOGUE, PROLOGUE_TOLD, UNIT, WAYS, base, caller, told,
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
/// The offset of the mark for use, after the gate and the table.
const USED: u64 = 16;
/// The most blocks of a trampoline.
const FAR: u64 = 128;

/// All arenas of the process. An arena's base is at the place that its hash names or after it, so that any thread
/// finds it at once.
///
/// Relaxed throughout: only the agent's thread adds arenas, and a thread that looks up an address has run there or
/// has seen it on its stack.
pub struct Arenas {
    bases: &'static [AtomicU64],
    /// The table of return thunks.
    thunks: u64,
    /// Whether calls are followed, in this session or an earlier one.
    follow: AtomicBool,
}

/// A range of code and its unwind information.
#[derive(Clone, Copy)]
pub struct Told {
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

impl Told {
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

    /// Returns an empty table over zeroed words. Trampolines will find thunks in the table at `thunks`.
    pub fn new(bases: &'static [AtomicU64], thunks: u64) -> Arenas {
        let follow = AtomicBool::new(false);
        Arenas {
            bases,
            thunks,
            follow,
        }
    }

    /// Makes the words of trampolines that follow calls writable, in existing and future arenas. Before that the
    /// whole arena is one mapping of code, because each more mapping makes each fork of the program slower.
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

    /// Records a mapped arena, with its gate open or not. Returns false if the table is full.
    pub fn add(&self, base: u64, open: bool) -> bool {
        if self.all().count() >= MOST {
            return false;
        }
        let mut places = self.places(base);
        let Some(free) = places.find(|word| word.load(Relaxed) <= UNMAPPED) else {
            return false;
        };
        free.store(base, Relaxed);
        self.set_gate(base, open);
        true
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let bases = self.bases.iter().map(|word| word.load(Relaxed));
        bases.filter(|base| *base > UNMAPPED)
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
    fn place(&self, base: u64) -> Option<&'static AtomicU64> {
        let mut places = self.places(base);
        places.find(|word| [0, base].contains(&word.load(Relaxed)))
    }

    /// Records that a trampoline at this address has a site, for [`Arenas::unmap_unused`].
    pub fn mark_used(&self, trampoline: u64) {
        if self.hold(trampoline) {
            Self::used(base(trampoline)).store(1, Relaxed);
        }
    }

    /// Unmaps the arenas without a mark.
    pub fn unmap_unused(&self) {
        for word in self.bases {
            let base = word.load(Relaxed);
            if base > UNMAPPED && Self::used(base).load(Relaxed) == 0 {
                word.store(UNMAPPED, Relaxed);
                memory::unmap(base as usize, LEN as usize);
            }
        }
    }

    /// Returns the mark of an arena, which a fork wipes.
    fn used(base: u64) -> &'static AtomicU64 {
        // SAFETY: this is a word of the arena's first page, which is ours, mapped as long as the arena is in the
        // table, and used only as atomic words.
        unsafe { &*((base + USED) as *const AtomicU64) }
    }

    /// Returns whether an arena contains an address.
    pub fn hold(&self, address: u64) -> bool {
        let place = self.place(base(address));
        place.is_some_and(|word| word.load(Relaxed) != 0)
    }

    /// Returns whether an arena contains a range, after its gate page.
    pub fn hold_range(&self, address: u64, len: u64) -> bool {
        let base = base(address);
        let end = address.checked_add(len);
        address - base >= PROLOGUE && end.is_some_and(|end| end <= base + LEN) && self.hold(address)
    }

    /// Opens or shuts all gates. At a shut gate a thread without a slab skips the probe.
    pub fn set_gates(&self, open: bool) {
        self.all().for_each(|base| self.set_gate(base, open));
    }

    fn set_gate(&self, base: u64, open: bool) {
        // SAFETY: the first page of an arena is ours, mapped for good, and used only as atomic words.
        let [gate, table] = unsafe { &*(base as *const [AtomicU64; 2]) };
        gate.store(open as u64, Relaxed); // a hint; the session word decides
        table.store(self.thunks, Relaxed); // always the same
    }

    /// Returns where a call that a trampoline follows by itself must return to, given its return address in the
    /// trampoline, and the first of its probe's words.
    pub fn returned(&self, address: u64) -> Option<(u64, u64)> {
        let told = self.told(address)?;
        let Direct { backs, slot } = told.direct?;
        let (_, caller) = backs
            .iter()
            .zip(told.callers()?)
            .find(|(back, _)| **back == address)?;
        // Relaxed: a thread that has the address has run there, and so has seen the word.
        Some((caller.load(Relaxed), slot))
    }

    /// Returns the unwind information of the code at an address.
    pub fn told(&self, address: u64) -> Option<Told> {
        if !self.hold(address) {
            return None;
        }
        let base = base(address);
        match address - base {
            ..PROLOGUE | INDEX.. => None,
            PROLOGUE..PROLOGUE_TOLD => read(base + PROLOGUE_TOLD),
            offset => {
                let blocks = (PROLOGUE / BLOCK..=offset / BLOCK).rev().take(FAR as usize);
                let mut told = blocks.filter_map(|block| in_index(base, block));
                told.find(|told| told.start <= address)
            }
        }
        .filter(|told| address < told.end)
    }
}

/// Returns the unwind information of the trampoline that begins in a block.
fn in_index(base: u64, block: u64) -> Option<Told> {
    // SAFETY: this is an arena's index. tiptoe wrote it before any thread could reach the trampoline, and it is used
    // only as atomics.
    let unit = unsafe { &*((base + INDEX + 2 * block) as *const AtomicU16) }.load(Relaxed);
    let told = base + u64::from(unit) * UNIT;
    (unit != 0 && told < base + INDEX).then(|| read(told))?
}

fn read(info: u64) -> Option<Told> {
    // SAFETY: the words are inside an arena, before its last page. All of it is readable, and what was written there
    // does not change.
    let word = |offset: u64| unsafe { &*((info + offset) as *const AtomicU32) }.load(Relaxed);
    // Offsets are relative to the beginning, and signed.
    let at = |offset: u64| info.wrapping_add_signed((word(offset) as i32).into());
    let entries = word(told::ENTRIES).clamp(1, told::PARTS);
    let last = told::TABLE + u64::from(entries - 1) * told::ENTRY;
    let count = word(u64::from(word(last + 4)) + told::COUNT);
    Some(Told {
        start: at(told::TABLE),
        end: at(last) + u64::from(count),
        info,
        direct: (entries == told::PARTS).then(|| Direct {
            backs: core::array::from_fn(|way| {
                at(told::TABLE + told::ENTRY * (1 + 2 * way as u64)) + told::RETURN
            }),
            slot: word(told::SLOT).into(),
        }),
    })
}
