//! Where each patch's trampoline goes, and every byte that has to be written.

use std::collections::BTreeMap;

use tiptoe_wire::arena::SPAN;

use crate::Refusal;
use crate::arena::{Arena, Arenas, Place, Space, Want, resolve};
use crate::decode::Padding;
use crate::displacement::{ByteSet, Displacement, SECOND, is_trap_byte, needs_second};
use crate::guard::Guard;
use crate::shape::{JUMP, SHORT_JUMP, Shape, Strategy, Window};
use crate::trampoline::{Abi, Body, Trampoline, build};
use crate::unwind::Told;

/// Where a thread that traps on a byte of the window goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The byte's offset from the site.
    pub offset: u8,
    /// Where it goes on, as an offset in [`Patch::code`].
    pub resume: u16,
}

/// A jump in padding, half way from a [`Strategy::Short`] site to its trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Island {
    /// Where it is.
    pub address: u64,
    /// The padding that was there.
    pub original: [u8; 5],
    /// The jump.
    pub patched: [u8; 5],
}

/// What unwinders are told of a trampoline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    /// Where it goes.
    pub address: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A patch that has no place yet.
struct Draft<'a> {
    shape: &'a Shape,
    window: &'a Window,
    trampoline: Trampoline,
    told: Told,
}

impl Draft<'_> {
    fn new<'a>(
        shape: &'a Shape,
        window: &'a Window,
        body: &Body,
        abi: &Abi,
    ) -> Result<Draft<'a>, Refusal> {
        let trampoline = build(shape, window, body, abi)?;
        let code = &trampoline.code;
        debug_assert!(code.followed().is_empty() || code.len() as u64 >= SPAN);
        // Where the patch is a call, the return address is on the stack already.
        let pushed = match window.guard {
            Guard::Call { .. } => 8,
            _ => 0,
        };
        Ok(Draft {
            shape,
            window,
            told: Told::trampoline(&trampoline.code, shape.site, pushed),
            trampoline,
        })
    }
}

/// Everything that is to be written for one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The first patched byte: the shape's site, or the entry's first instruction
    /// where a filter asks for an argument that is overwritten in front of that.
    pub site: u64,
    /// How it is patched.
    pub strategy: Strategy,
    /// How many bytes are written at the site: 1, 2, 5, or 6 where the last two trap
    /// only together.
    pub len: u8,
    /// How many bytes of instructions are displaced: where the copy goes on.
    pub displaced: u8,
    /// How many bytes of compares in front of the site the copy makes again first.
    pub repeated: u8,
    /// The bytes at the site, `len` of them to be put back.
    pub original: [u8; 8],
    /// The first `len` are written at the site.
    pub patched: [u8; 8],
    /// Where the trampoline goes.
    pub trampoline: u64,
    /// The trampoline.
    pub code: Vec<u8>,
    /// What unwinders are told of it, and where that goes, in the same arena.
    pub told: Telling,
    /// Where the displaced instructions' copy begins in `code`: a thread that goes
    /// on there is not counted.
    pub copy: u16,
    /// Every byte that traps; the first is the site itself. One that resumes at `copy`
    /// is no instruction's head: it guards the site (there a thread traps that has found
    /// the first byte of the original under somebody else's removal), and is to be
    /// written with the heads and put back with them.
    pub heads: Vec<Head>,
    /// The island, for [`Strategy::Short`].
    pub island: Option<Island>,
    /// Whether one of the heads raises SIGILL, or the site would if its first byte
    /// were put back alone; SIGTRAP is always needed.
    pub needs_sigill: bool,
}

impl Patch {
    /// Whether what stands at `offset` traps, whatever follows the patch.
    pub fn traps_at(&self, offset: u8) -> bool {
        let at = usize::from(offset);
        let pair = || needs_second(self.patched[at]) && self.patched[at + 1] == SECOND;
        is_trap_byte(self.patched[at]) || at + 2 == usize::from(self.len) && pair()
    }
}

/// Plans patches one after the other, so that none meets another.
#[derive(Debug)]
pub struct Planner {
    abi: Abi,
    arenas: Arenas,
    /// First byte to end of all that patches displace or cover.
    claims: BTreeMap<u64, u64>,
}

impl Planner {
    /// A planner for one address space.
    pub fn new(abi: Abi, space: Space) -> Planner {
        Planner {
            abi,
            arenas: Arenas::new(space),
            claims: BTreeMap::new(),
        }
    }

    /// Plans the patch of a site by the best strategy that finds room. `islands`
    /// finds padding near the site, and is only called where no jump fits.
    pub fn place(
        &mut self,
        shape: &Shape,
        body: &Body,
        islands: impl FnOnce() -> Vec<Padding>,
    ) -> Result<Patch, Refusal> {
        let shape = shape.suited_to(body)?;
        let mut islands = Some(islands);
        let mut reason = Refusal::NoRoom;
        let called = |window: &&Window| matches!(window.guard, Guard::Call { .. });
        let followed = body.is_entry_only();
        for window in shape.windows.iter().filter(|w| !(followed && called(w))) {
            let covered = window.displaced.max(window.strategy.patch_len().into()) as u64;
            if let Some(other) = self.claimed(shape.site, shape.site + covered) {
                reason = Refusal::Overlaps { other };
                continue;
            }
            let draft = Draft::new(shape, window, body, &self.abi)?;
            let planned = match window.strategy {
                Strategy::Short => {
                    let islands = islands.take().map_or(Vec::new(), |find| find());
                    self.place_short(&draft, &islands)
                }
                _ => self.place_direct(&draft),
            };
            if let Some(patch) = planned {
                self.claims.insert(shape.site, shape.site + covered);
                return Ok(patch);
            }
        }
        Err(reason)
    }

    /// The arenas opened since the last call: to be mapped before their patches.
    pub fn new_arenas(&mut self) -> Vec<Arena> {
        self.arenas.take_fresh(&self.abi)
    }

    /// The patch that owns a byte of a range.
    fn claimed(&self, start: u64, end: u64) -> Option<u64> {
        let (&other, &until) = self.claims.range(..end).next_back()?;
        (until > start).then_some(other)
    }

    fn place_direct(&mut self, draft: &Draft) -> Option<Patch> {
        let &Draft { shape, window, .. } = draft;
        let place = self.room(draft, shape.site + 5, |set| window.allowed(set))?;
        let bytes = match window.strategy {
            Strategy::Jump => window.completed(jump(window.opcode(), shape.site, place.at)),
            _ => vec![0xcc],
        };
        patch(draft, place, &bytes)
    }

    fn place_short(&mut self, draft: &Draft, islands: &[Padding]) -> Option<Patch> {
        let &Draft { shape, window, .. } = draft;
        let (address, original) = islands.iter().find_map(|p| self.island(shape, window, p))?;
        let anywhere = |_| Displacement::over(&[], ByteSet::ALL);
        let place = self.room(draft, address + 5, anywhere)?;
        self.claims.insert(address, address + 5);
        let displacement = address.wrapping_sub(shape.site + 2) as u8;
        let mut patch = patch(draft, place, &[SHORT_JUMP, displacement])?;
        patch.island = Some(Island {
            address,
            original,
            patched: jump(JUMP, address, place.at),
        });
        Some(patch)
    }

    /// Five bytes of padding that nobody holds and a short jump may go to; from the
    /// end, so that the function in front can still use the beginning.
    fn island(&self, shape: &Shape, window: &Window, padding: &Padding) -> Option<(u64, [u8; 5])> {
        let allowed = window.allowed(ByteSet::TRAPS);
        let candidates = padding.bytes.windows(5).enumerate().rev();
        let mut addressed = candidates.map(|(i, held)| (padding.address + i as u64, held));
        addressed.find_map(|(address, held)| {
            let distance = address.wrapping_sub(shape.site + 2) as i64;
            let displacement = i8::try_from(distance).ok()?;
            let fits = allowed.0[0].contains(displacement as u8);
            let free = self.claimed(address, address + 5).is_none();
            (fits && free).then(|| (address, held.try_into().expect("five bytes")))
        })
    }

    fn room(
        &mut self,
        draft: &Draft,
        origin: u64,
        allowed: impl Fn(ByteSet) -> Displacement,
    ) -> Option<Place> {
        let code = &draft.trampoline.code;
        self.arenas.place(Want {
            origin,
            any: allowed(ByteSet::TRAPS),
            pairs: allowed(ByteSet::PAIRS),
            reach: code.reach(),
            len: code.len() as u64,
            hot: draft.trampoline.hot as u64,
            told: draft.told.len(),
        })
    }
}

/// `jmp to`, or `call to`, at `from`; the two are within reach of each other.
fn jump(opcode: u8, from: u64, to: u64) -> [u8; 5] {
    let [a, b, c, d] = (to.wrapping_sub(from + 5) as u32).to_le_bytes();
    [opcode, a, b, c, d]
}

fn patch(draft: &Draft, place: Place, bytes: &[u8]) -> Option<Patch> {
    let Draft {
        shape,
        window,
        trampoline,
        told,
    } = draft;
    let at = place.at;
    let code = trampoline.code.link(at, |to| resolve(at, to))?;
    let mut patched = shape.original;
    patched[..bytes.len()].copy_from_slice(bytes);
    let head = |offset, resume: usize| Head {
        offset,
        resume: resume as u16,
    };
    let mut heads = vec![head(0, trampoline.trapped)];
    let guard = window.guard.offset();
    heads.extend(guard.map(|at| head(at, trampoline.copy)));
    heads.extend(
        trampoline
            .heads
            .iter()
            .map(|&(at, resume)| head(at, resume)),
    );
    let inner_sigill = |&h: &u8| {
        let byte = bytes[usize::from(h)];
        is_trap_byte(byte) || needs_second(byte)
    };
    let needs_sigill = window.guard.raises_sigill(bytes) || window.heads.iter().any(inner_sigill);
    Some(Patch {
        site: shape.site,
        strategy: window.strategy,
        len: bytes.len() as u8,
        displaced: window.displaced as u8,
        repeated: trampoline.repeated as u8,
        original: shape.original,
        patched,
        trampoline: at,
        code,
        told: Telling {
            address: place.told,
            bytes: told.at(place.told, at),
        },
        copy: trampoline.copy as u16,
        heads,
        island: None,
        needs_sigill,
    })
}
