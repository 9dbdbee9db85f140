//! The memory of trampolines, and what unwinders are told of them: see
//! [`tiptoe_wire::arena`] for what is where in it.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_wire::arena::{
    BLOCK, INDEX, LEN, PROLOGUE, PROLOGUE_TOLD, UNIT, WAYS, base, caller, told,
};
use tiptoe_wire::calls::HASH;

use tiptoe_sys::raw::Errno;

use crate::memory;

/// The bits of the number of places for an arena.
const BITS: u32 = 13;
/// Most arenas: half of the places, so that there is always a free one.
const MOST: usize = 1 << (BITS - 1);
/// In place of an arena that was unmapped: what its hash led past goes on being found.
const UNMAPPED: u64 = 1;
/// The word of an arena's first page, after the gate and the table, that marks it as used.
const USED: u64 = 16;
/// Most blocks that a trampoline has.
const FAR: u64 = 128;

/// All arenas of the process: their first addresses, each at the place that its hash
/// names or behind, so that anybody finds one at once.
///
/// Relaxed throughout: the agent's thread alone adds arenas, and who looks for an address
/// in one has been there, or seen it on its stack.
pub struct Arenas {
    bases: &'static [AtomicU64],
    /// The table of return thunks.
    thunks: u64,
    /// Whether calls are followed, in this session or in one before.
    follow: AtomicBool,
}

/// A range of code and what unwinders are told of it.
#[derive(Clone, Copy)]
pub struct Told {
    /// Its first byte.
    pub start: u64,
    /// Behind its last one.
    pub end: u64,
    /// Its `.eh_frame_hdr`.
    pub info: u64,
    /// Of the calls that it follows by itself, if it does so.
    pub direct: Option<Direct>,
}

/// The calls that a trampoline follows by itself.
#[derive(Clone, Copy)]
pub struct Direct {
    /// Where they return to in it.
    pub backs: [u64; WAYS],
    /// The first of the probe's words.
    pub slot: u64,
}

impl Told {
    /// Where they return to in the end, or 0 where that is not known yet; once a word holds
    /// another it does not change. `None` where there are no such calls.
    pub fn callers(&self) -> Option<&'static [AtomicU64; WAYS]> {
        self.direct?;
        // SAFETY: the trampoline lies in an arena, whose last page is ours, mapped writable for
        // good, and only ever used as atomic words.
        Some(unsafe { &*(caller(self.start, 0) as *const [AtomicU64; WAYS]) })
    }
}

impl Arenas {
    /// Words that they need.
    pub const WORDS: usize = 1 << BITS;

    /// None yet, over zeroed words; trampolines will find thunks in the table at `thunks`.
    pub fn new(bases: &'static [AtomicU64], thunks: u64) -> Arenas {
        let follow = AtomicBool::new(false);
        Arenas {
            bases,
            thunks,
            follow,
        }
    }

    /// Lets the words of trampolines that follow calls be written, in all arenas and in those to come. Else the whole of
    /// an arena is code: each mapping more makes each fork of the program slower.
    pub fn let_callers_be_written(&self) -> bool {
        self.follow.store(true, Relaxed); // one thread maps arenas
        self.all()
            .all(|base| memory::let_callers_be_written(base as usize).is_ok())
    }

    /// Maps an arena.
    pub fn map(&self, base: u64) -> Result<(), Errno> {
        memory::arena(base as usize, LEN as usize)?;
        // Relaxed: as above.
        match self.follow.load(Relaxed) {
            true => memory::let_callers_be_written(base as usize)
                .inspect_err(|_| memory::unmap(base as usize, LEN as usize)),
            false => Ok(()),
        }
    }

    /// Notes an arena that was mapped, with its gate open or not.
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

    /// The ranges of all arenas.
    pub fn ranges(&self) -> impl Iterator<Item = core::ops::Range<usize>> {
        self.all().map(|base| base as usize..(base + LEN) as usize)
    }

    /// All places, from the one on that an arena's hash names.
    fn places(&self, base: u64) -> impl Iterator<Item = &'static AtomicU64> {
        let first = (base / LEN).wrapping_mul(HASH) >> (u64::BITS - BITS);
        let halves = self.bases.split_at_checked(first as usize);
        let (before, behind) = halves.unwrap_or((self.bases, &[]));
        behind.iter().chain(before)
    }

    /// Where an arena is noted, or the end of what its hash led to.
    fn place(&self, base: u64) -> Option<&'static AtomicU64> {
        let mut places = self.places(base);
        places.find(|word| [0, base].contains(&word.load(Relaxed)))
    }

    /// Notes that a trampoline at this address has a site, for [`Arenas::unmap_unused`].
    pub fn mark_used(&self, trampoline: u64) {
        if self.hold(trampoline) {
            Self::used(base(trampoline)).store(1, Relaxed);
        }
    }

    /// Unmaps those without a mark.
    pub fn unmap_unused(&self) {
        for word in self.bases {
            let base = word.load(Relaxed);
            if base > UNMAPPED && Self::used(base).load(Relaxed) == 0 {
                word.store(UNMAPPED, Relaxed);
                memory::unmap(base as usize, LEN as usize);
            }
        }
    }

    /// The mark of an arena. A fork wipes it.
    fn used(base: u64) -> &'static AtomicU64 {
        // SAFETY: a word of the arena's first page, which is ours, mapped as long as the arena is noted, and only
        // ever used as atomic words.
        unsafe { &*((base + USED) as *const AtomicU64) }
    }

    /// Whether an address lies in one.
    pub fn hold(&self, address: u64) -> bool {
        let place = self.place(base(address));
        place.is_some_and(|word| word.load(Relaxed) != 0)
    }

    /// Whether a range lies in one, after its gate page.
    pub fn hold_range(&self, address: u64, len: u64) -> bool {
        let base = base(address);
        let end = address.checked_add(len);
        address - base >= PROLOGUE && end.is_some_and(|end| end <= base + LEN) && self.hold(address)
    }

    /// Opens or shuts all gates: behind a shut one a thread without a slab goes
    /// straight on.
    pub fn set_gates(&self, open: bool) {
        self.all().for_each(|base| self.set_gate(base, open));
    }

    fn set_gate(&self, base: u64, open: bool) {
        // SAFETY: the first page of an arena is ours, mapped for good, and only
        // ever used as atomic words.
        let [gate, table] = unsafe { &*(base as *const [AtomicU64; 2]) };
        gate.store(open as u64, Relaxed); // a hint; the session word decides
        table.store(self.thunks, Relaxed); // always the same
    }

    /// Where a call that a trampoline follows by itself goes on, given where it returns to in
    /// the trampoline; and the first of its probe's words.
    pub fn returned(&self, address: u64) -> Option<(u64, u64)> {
        let told = self.told(address)?;
        let Direct { backs, slot } = told.direct?;
        let (_, caller) = backs
            .iter()
            .zip(told.callers()?)
            .find(|(back, _)| **back == address)?;
        // Relaxed: who has the address has been there, and so has seen the word.
        Some((caller.load(Relaxed), slot))
    }

    /// What unwinders are told of the code at an address.
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

/// What is told of the trampoline that begins in a block.
fn in_index(base: u64, block: u64) -> Option<Told> {
    // SAFETY: the index of an arena, written by tiptoe before any thread comes to the
    // trampoline, and seen as atomics only.
    let unit = unsafe { &*((base + INDEX + 2 * block) as *const AtomicU16) }.load(Relaxed);
    let told = base + u64::from(unit) * UNIT;
    (unit != 0 && told < base + INDEX).then(|| read(told))?
}

fn read(info: u64) -> Option<Told> {
    // SAFETY: inside of an arena, before its last page; all of it is readable, and what was
    // written there does not change.
    let word = |offset: u64| unsafe { &*((info + offset) as *const AtomicU32) }.load(Relaxed);
    // Relative to the beginning, of either sign.
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
