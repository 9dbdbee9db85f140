//! The memory of trampolines, and what unwinders are told of them: see
//! [`tiptoe_wire::arena`] for what is where in it.

use core::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use tiptoe_wire::arena::{BLOCK, INDEX, LEN, PROLOGUE, PROLOGUE_TOLD, UNIT, base, told};
use tiptoe_wire::calls::HASH;

/// The bits of the number of places for an arena.
const BITS: u32 = 13;
/// Most arenas: half of the places, so that there is always a free one.
const MOST: usize = 1 << (BITS - 1);
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
}

impl Arenas {
    /// Words that they need.
    pub const WORDS: usize = 1 << BITS;

    /// None yet, over zeroed words; trampolines will find thunks in the table at `thunks`.
    pub fn new(bases: &'static [AtomicU64], thunks: u64) -> Arenas {
        Arenas { bases, thunks }
    }

    /// Notes an arena that was mapped, with its gate open or not.
    pub fn add(&self, base: u64, open: bool) -> bool {
        if self.all().count() >= MOST {
            return false;
        }
        let Some(free) = self.place(base) else {
            return false;
        };
        free.store(base, Relaxed);
        self.set_gate(base, open);
        true
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        let bases = self.bases.iter().map(|word| word.load(Relaxed));
        bases.filter(|base| *base != 0)
    }

    /// Where an arena is noted, or would be.
    fn place(&self, base: u64) -> Option<&'static AtomicU64> {
        let first = (base / LEN).wrapping_mul(HASH) >> (u64::BITS - BITS);
        let (before, behind) = self.bases.split_at_checked(first as usize)?;
        let mut places = behind.iter().chain(before);
        places.find(|word| [0, base].contains(&word.load(Relaxed)))
    }

    /// Whether an address lies in one.
    pub fn hold(&self, address: u64) -> bool {
        let place = self.place(base(address));
        place.is_some_and(|word| word.load(Relaxed) != 0)
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
    // SAFETY: inside of an arena, before its last page; all of it is readable.
    let (begin, count) = unsafe {
        (
            &*((info + told::BEGIN) as *const AtomicI32),
            &*((info + told::COUNT) as *const AtomicU32),
        )
    };
    let start = (info + told::BEGIN).wrapping_add_signed(begin.load(Relaxed).into());
    Some(Told {
        start,
        end: start + u64::from(count.load(Relaxed)),
        info,
    })
}
