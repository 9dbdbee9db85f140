//! Plans the places of trampolines (the code that counts), and every byte to write.

use std::collections::BTreeMap;
use std::ops::Range;

use tiptoe_wire::Head;

use crate::Refusal;
use crate::abi::Abi;
use crate::arena::{Arena, Arenas, CallerArena, RoomRequest, Space, TrampolineRoom, resolve};
use crate::body::Body;
use crate::build::build;
use crate::displacement::{ByteSet, Displacement, is_trap_byte, needs_second};
use crate::guard::Guard;
use crate::shape::{Shape, Window};
use crate::strategy::{JUMP, SHORT_JUMP, Strategy};
use crate::survey::Padding;
use crate::trampoline::Trampoline;
use crate::unwind::UnwindInfo;

/// A jump in padding, from a [`Strategy::Short`] site to its trampoline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Island {
    /// The padding's address.
    pub address: u64,
    /// The padding's bytes.
    pub original: [u8; 5],
    /// The jump.
    pub patched: [u8; 5],
}

/// A trampoline's unwind information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindBytes {
    /// The address to write at, in the trampoline's arena.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

struct Draft<'a> {
    shape: &'a Shape,
    window: &'a Window,
    trampoline: Trampoline,
    unwind: UnwindInfo,
}

impl Draft<'_> {
    fn new<'a>(
        shape: &'a Shape,
        window: &'a Window,
        body: &Body,
        abi: &Abi,
    ) -> Result<Draft<'a>, Refusal> {
        let trampoline = build(shape, window, body, abi)?;
        // A patched call has pushed the return address.
        let pushed = match window.guard {
            Guard::Call { .. } => 8,
            _ => 0,
        };
        Ok(Draft {
            shape,
            window,
            unwind: UnwindInfo::trampoline(&trampoline.code, shape.site, pushed),
            trampoline,
        })
    }
}

/// All bytes to write for one site (place in the code).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The first patched byte: the shape's site, or the entry if a filter needs an argument overwritten in between.
    pub site: u64,
    /// The strategy.
    pub strategy: Strategy,
    /// Number of bytes written at the site: 1, 2, 5, or 6 if the last two trap only together.
    pub len: u8,
    /// Length of the displaced instructions.
    pub displaced: u8,
    /// Length of the repeated compares before the site.
    pub repeated: u8,
    /// The original bytes; the first `len` are restored.
    pub original: [u8; 8],
    /// The patched bytes; the first `len` are written.
    pub patched: [u8; 8],
    /// The trampoline's address.
    pub trampoline: u64,
    /// The trampoline.
    pub code: Vec<u8>,
    /// The trampoline's unwind information.
    pub unwind: UnwindBytes,
    /// The address of the words for callers' return addresses ([`tiptoe_wire::arena::CALLER_BYTES`]), or 0.
    pub callers: u64,
    /// The offset in `code` of the displaced instructions' copy. Threads that resume there are not counted.
    pub copy: u16,
    /// The bytes at which a thread may trap, the site first. Guards ([`Head::is_guard`]) trap only once another tool
    /// has restored the site's first byte, but must be written and restored with the heads.
    pub heads: Vec<Head>,
    /// The island of [`Strategy::Short`].
    pub island: Option<Island>,
    /// Whether a head raises SIGILL, or the site does once another tool has restored its first byte.
    pub needs_sigill: bool,
}

/// Plans patches that never overlap.
#[derive(Debug)]
pub struct Planner {
    abi: Abi,
    arenas: Arenas,
    claims: BTreeMap<u64, u64>,
}

impl Planner {
    /// Returns a planner for one address space.
    pub fn new(abi: Abi, space: Space) -> Planner {
        Planner {
            abi,
            arenas: Arenas::new(space),
            claims: BTreeMap::new(),
        }
    }

    /// Plans a site's patch by the best strategy with room. Calls `islands` only if no jump fits, because `islands` is
    /// slow.
    pub fn plan(
        &mut self,
        shape: &Shape,
        body: &Body,
        islands: impl FnOnce() -> Vec<Padding>,
    ) -> Result<Patch, Refusal> {
        let shape = body.suited(shape)?;
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

    /// Returns the ranges to map for the next [`Planner::new_arenas`]. Arenas outside them are mapped.
    pub fn new_ranges(&self) -> Vec<Range<u64>> {
        self.arenas.fresh_ranges()
    }

    /// Returns all callers' arenas, those of [`Space`] first. The rest must be mapped like [`Planner::new_arenas`].
    pub fn caller_arenas(&self) -> &[CallerArena] {
        &self.arenas.space.callers
    }

    /// Returns the arenas opened since the last call. They must be mapped before patches that use them are written.
    pub fn new_arenas(&mut self) -> Vec<Arena> {
        self.arenas.take_fresh(&self.abi)
    }

    fn claimed(&self, start: u64, end: u64) -> Option<u64> {
        let (&other, &until) = self.claims.range(..end).next_back()?;
        (until > start).then_some(other)
    }

    fn place_direct(&mut self, draft: &Draft) -> Option<Patch> {
        let &Draft { shape, window, .. } = draft;
        let room = self.room(draft, shape.site + 5, |set| window.allowed(set))?;
        let bytes = match window.strategy {
            Strategy::Jump => window.completed(jump(window.opcode(), shape.site, room.at)),
            _ => vec![0xcc],
        };
        patch(draft, room, &bytes)
    }

    fn place_short(&mut self, draft: &Draft, islands: &[Padding]) -> Option<Patch> {
        let &Draft { shape, window, .. } = draft;
        let (address, original) = islands.iter().find_map(|p| self.island(shape, window, p))?;
        let anywhere = |_| Displacement::over(&[], ByteSet::ALL);
        let room = self.room(draft, address + 5, anywhere)?;
        self.claims.insert(address, address + 5);
        let displacement = address.wrapping_sub(shape.site + 2) as u8;
        let mut patch = patch(draft, room, &[SHORT_JUMP, displacement])?;
        patch.island = Some(Island {
            address,
            original,
            patched: jump(JUMP, address, room.at),
        });
        Some(patch)
    }

    /// Returns the last five free bytes of padding in a short jump's reach. Earlier bytes stay free for farther sites,
    /// which reach no later bytes.
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
    ) -> Option<TrampolineRoom> {
        let code = &draft.trampoline.code;
        self.arenas.reserve(RoomRequest {
            origin,
            any: allowed(ByteSet::TRAPS),
            pairs: allowed(ByteSet::PAIRS),
            reach: code.reach(),
            len: code.len() as u64,
            hot: draft.trampoline.hot as u64,
            unwind_len: draft.unwind.len(),
            needs_callers: !code.followed().is_empty(),
        })
    }
}

fn jump(opcode: u8, from: u64, to: u64) -> [u8; 5] {
    let [a, b, c, d] = (to.wrapping_sub(from + 5) as u32).to_le_bytes();
    [opcode, a, b, c, d]
}

fn patch(draft: &Draft, room: TrampolineRoom, bytes: &[u8]) -> Option<Patch> {
    let Draft {
        shape,
        window,
        trampoline,
        unwind,
    } = draft;
    let at = room.at;
    let code = trampoline.code.link(at, |to| resolve(&room, to))?;
    let mut patched = shape.original;
    patched[..bytes.len()].copy_from_slice(bytes);
    let head = |offset, resume: usize, is_guard| Head {
        offset,
        resume: resume as u16,
        is_guard,
    };
    let mut heads = vec![head(0, trampoline.trapped, false)];
    let guard = window.guard.offset();
    heads.extend(guard.map(|at| head(at, trampoline.copy, true)));
    let inner = trampoline.heads.iter();
    heads.extend(inner.map(|&(at, resume)| head(at, resume, false)));
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
        unwind: UnwindBytes {
            address: room.unwind,
            bytes: unwind.at(room.unwind, at, room.callers),
        },
        callers: room.callers,
        copy: trampoline.copy as u16,
        heads,
        island: None,
        needs_sigill,
    })
}
