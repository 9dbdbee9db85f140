//! *Trampolines* (generated code) *follow* calls: they count entry and return. This module does so where they cannot:
//! - a thread's first call, and the first call from a caller;
//! - a call whose frame (our record, [`Frame`]) is the first in a page;
//! - a return whose frame is not the uppermost;
//! - every call of a thread that may not read the time stamp counter ([`crate::forbidden`]).
//!
//! A call is *left* if it ends without a return. Signal handlers run this code, so it must neither lock nor wait.
//!
//! A call is counted but not followed if its thread has no slab (block of counters), or if there is no room for its
//! frame or return stub ([`Thunk`]). The same holds if following would do harm ([`crate::described`]). A return that
//! finds no frame of its own thread takes the frame from another thread, because a coroutine may have moved to this
//! thread. If no thread has the frame, the call has already been counted as left. The return undoes that count, but the
//! call's duration is unknown.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tiptoe_sys::raw::{gettid, thread_alive};
use tiptoe_uprobe::frames::Frame;
use tiptoe_uprobe::thunks::Thunk;
use tiptoe_wire::calls::{
    BY_ITSELF, FRAME_BYTES, GATE, MAX_PROBES, MAX_SLOT, RETURNING, TIMED, UNCOUNTED, UNDER, words,
};
use tiptoe_wire::{Data, Geometry, timed_values};

use crate::clockwork;
use crate::forbidden;
use crate::hit;
use crate::shared::{self, Shared};
use crate::text;

mod region;

use self::region::Region;
pub use self::region::{enter_session, forced, take_over};

const FRAME: u64 = FRAME_BYTES as u64;

#[repr(C)]
pub struct CallRegisters {
    rax: u64,
    rcx: u64,
    rdx: u64,
    others: [u64; 7],
    back: u64,
    what: u64,
    saved: [u64; 3],
    /// The followed call's return address. The field's own address identifies the call's frame.
    to: u64,
}

impl CallRegisters {
    fn return_slot(&self) -> u64 {
        core::ptr::from_ref(&self.to) as u64
    }

    fn slot(&self) -> u32 {
        self.what as u32 & (TIMED as u32 - 1)
    }

    /// Returns the index of the set of words that counts calls with this call's value of `--by` ([`timed_values`]).
    fn part(&self) -> u8 {
        (self.rcx >> 56) as u8
    }

    fn probe(&self) -> Option<u32> {
        let number = self.rcx as u32;
        Some(number).filter(|number| *number < MAX_PROBES)
    }

    fn has(&self, flag: i32) -> bool {
        self.what & flag as u64 != 0
    }
}

pub extern "C" fn slow(registers: &mut CallRegisters) {
    if registers.has(RETURNING) {
        returns(&ReturnedCall {
            return_slot: registers.return_slot(),
            slot: registers.slot(),
            is_timed: registers.has(TIMED),
        });
    } else {
        registers.rax = enters(registers).unwrap_or(0);
    }
}

struct CallSession {
    shared: &'static Shared,
    data: Data<'static>,
    slab: u32,
}

impl CallSession {
    fn find() -> Option<CallSession> {
        let shared = shared::get().filter(|shared| shared.is_home())?;
        let pid = shared.pid.load(Relaxed); // constant within a session
        let session = shared.claims.session()?;
        let data = shared.data()?;
        let slab = hit::give_slab(shared, &data, pid, session).unwrap_or(0);
        Some(CallSession { shared, data, slab })
    }

    fn of(shared: &'static Shared, data: &Data<'static>, index: usize) -> CallSession {
        let slab = Some(index as u32 + 1).filter(|slab| *slab < data.geometry().slabs);
        CallSession {
            shared,
            data: *data,
            slab: slab.unwrap_or(0),
        }
    }

    fn add(&self, slot: u64, word: u32, count: u64) {
        self.data.add_many(self.slab, slot as u32 + word, count);
    }

    fn add_of(&self, slot: u64, part: u8, word: u32, count: u64) {
        self.add(timed_values::set(slot as u32, part).into(), word, count);
    }

    fn left(&self, frame: Frame) {
        if let Some((slot, _)) = self.ended(&frame) {
            self.add_of(slot, frame.part, words::LEFT, 1);
        }
    }

    /// Records that the call of a removed frame has ended. If the call is of a *gate* (the function of `--under`), the
    /// thread on which the call began is no longer inside. Returns the probe's slot (its counter), and whether the
    /// probe is a gate; `None` if the frame names no probe.
    fn ended(&self, frame: &Frame) -> Option<(u64, bool)> {
        let (slot, gate) = probe_of(self.shared, frame)?;
        if gate && let Some(slab) = self.shared.slab_at(&self.data, frame.entered) {
            self.data.add_many(slab, Geometry::INSIDE, u64::MAX);
        }
        Some((slot, gate))
    }
}

fn probe_of(shared: &Shared, frame: &Frame) -> Option<(u64, bool)> {
    match frame.thunk {
        slot if slot < MAX_SLOT.into() => Some((slot, false)),
        thunk => shared.thunks.at(thunk).map(|t| (t.slot, t.is_gate)),
    }
}

/// If `address` is a call's return address in a thunk or trampoline, returns the true return address and the probe's
/// slot.
fn way_back(shared: &Shared, address: u64) -> Option<(u64, u64)> {
    let thunk = shared.thunks.at(address);
    let thunk = thunk.map(|thunk| (thunk.to, thunk.slot));
    thunk.or_else(|| shared.arenas.returned(address))
}

/// Handles a call's entry. Returns the call's thunk, or the result of [`by_itself`]; `None` if the call is not
/// followed.
fn enters(registers: &CallRegisters) -> Option<u64> {
    let here = CallSession::find()?;
    if registers.has(UNCOUNTED) && registers.has(UNDER) && !here.data.is_inside(here.slab) {
        return None;
    }
    let slot = u64::from(registers.slot());
    let followed = follow(&here, registers);
    // Without `UNCOUNTED`, the trampoline has already counted the call as followed, so `missing` is 0 or -1.
    let more = u64::from(followed.is_some());
    let missing = more.wrapping_sub(u64::from(!registers.has(UNCOUNTED)));
    here.add_of(slot, registers.part(), words::CALLS, missing);
    here.add_of(slot, registers.part(), words::ONLY_COUNTED, 1 - more);
    if registers.has(GATE) {
        here.data.add_many(here.slab, Geometry::INSIDE, missing);
    }
    followed
}

fn follow(here: &CallSession, registers: &CallRegisters) -> Option<u64> {
    // Slab 0, for threads without their own, has no descriptor, and so no region.
    let index = here.slab.checked_sub(1)? as usize;
    let region = Region::of_caller().or_else(|| Region::give(here, index))?;
    if registers.has(TIMED) && forbidden::is() {
        return None;
    }
    let thunk = Thunk {
        to: registers.to,
        calls: registers.rax,
        exit: registers.rdx,
        slot: u64::from(registers.slot()),
        is_gate: registers.has(GATE),
    };
    let way_back = way_back(here.shared, registers.to);
    if way_back.is_none() && !here.shared.described.calls_from(registers.to) {
        return None;
    }
    let itself = by_itself(here.shared, registers, way_back.is_some());
    let goes = match itself {
        Some(way) => way,
        None => {
            let thunks = &here.shared.thunks;
            thunks.get(registers.probe()?, &thunk, way_back.is_some())?
        }
    };
    let caller = |frame: Frame| {
        let callers = probe_of(here.shared, &frame).map(|(slot, _)| slot);
        way_back.is_some_and(|(_, slot)| callers == Some(slot))
    };
    let (frames, end) = (region.frames(), region.position());
    let left = |frame| here.left(frame);
    let position = frames.reserve(end, registers.return_slot(), caller, left, |end| {
        region.rise(end)
    })?;
    let frame = Frame {
        slot: registers.return_slot(),
        thunk: itself.map_or(goes, |_| thunk.slot),
        entered: match thunk.is_gate {
            true => here.shared.slab(&here.data, here.slab),
            false => clockwork::ticks(),
        },
        callees: 0,
        part: registers.part(),
    };
    frames.write(position, &frame);
    Some(goes)
}

/// If the trampoline can follow this call without a thunk, returns [`BY_ITSELF`] plus the caller's index. A trampoline
/// can do so for its first callers, except callers in a thunk or trampoline (`is_ours`), because a trampoline's unwind
/// information can name only a return address in the program.
fn by_itself(shared: &Shared, registers: &CallRegisters, is_ours: bool) -> Option<u64> {
    let range = shared.arenas.unwind_range(registers.back)?;
    // Relaxed, also in the exchange: the word orders no other data, and changes only once.
    let is_its = |caller: &AtomicU64| match caller.load(Relaxed) {
        0 if is_ours => false,
        0 => match caller.compare_exchange(0, registers.to, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(found) => found == registers.to,
        },
        found => found == registers.to,
    };
    let way = range.callers()?.iter().position(is_its)?;
    Some(BY_ITSELF + way as u64)
}

/// Must be called before a function that inspects its return address `to`. If followed functions tail-called that
/// function, counts those as returned, and replaces `to` by the program's own address.
pub fn return_early(shared: &Shared, to: &mut u64) {
    while let Some((caller, slot)) = way_back(shared, *to) {
        let call = ReturnedCall {
            return_slot: core::ptr::from_ref(to) as u64,
            slot: slot as u32,
            is_timed: clockwork::is_on(),
        };
        *to = caller;
        returns(&call);
    }
}

struct ReturnedCall {
    return_slot: u64,
    slot: u32,
    is_timed: bool,
}

impl ReturnedCall {
    /// Returns whether a frame is this call's. An equal stack slot is not enough, because a program that copies stacks
    /// may reuse the slot for another call.
    fn is(&self, frame: &Frame) -> bool {
        let slot = || Some(probe_of(shared::get()?, frame)?.0);
        frame.slot == self.return_slot && slot() == Some(self.slot.into())
    }
}

fn returns(call: &ReturnedCall) {
    let here = CallSession::find();
    let here = here.as_ref();
    // Without a session it is unknown whether the thread may read the time stamp counter.
    let now = here.filter(|_| call.is_timed).map(|_| clockwork::ticks());
    let own = Region::of_caller().and_then(|region| {
        let (frames, end) = (region.frames(), region.position());
        let left = |frame| here.map_or((), |here| here.left(frame));
        let wanted = |frame: &Frame| call.is(frame);
        let (at, frame) = frames.pop(end, wanted, left, |end| region.set_position(end))?;
        let spent = now.map(|now| clockwork::ns(now.wrapping_sub(frame.entered)));
        frames.charge_caller(at, spent.unwrap_or(0));
        Some(frame)
    });
    let Some(here) = here else { return };
    let frame = own.or_else(|| take_other_threads_frame(here, call));
    let slot = u64::from(call.slot);
    if let Some(frame) = &frame {
        here.ended(frame);
    }
    let part = frame.map_or(0, |frame| frame.part);
    here.add_of(slot, part, words::RETURNS, 1);
    match (frame, now) {
        (Some(frame), Some(now)) => time(here, slot, &frame, now),
        (Some(_), None) => {}
        (None, _) => here.add(slot, words::LEFT, u64::MAX),
    }
}

fn take_other_threads_frame(here: &CallSession, call: &ReturnedCall) -> Option<Frame> {
    here.shared.regions().find_map(|(index, base)| {
        let region = Region::at(base)?;
        let wanted = |frame: &Frame| call.is(frame);
        let frame = region.frames().take_from_other(region.height(), wanted)?;
        // The two threads' slabs may have the call's `--by` value at different indices.
        let slabs = [index as u32 + 1, here.slab];
        let part = timed_values::same_value(&here.data, call.slot, slabs, frame.part);
        Some(Frame { part, ..frame })
    })
}

fn time(here: &CallSession, slot: u64, frame: &Frame, now: u64) {
    let ns = clockwork::ns(now.wrapping_sub(frame.entered));
    if ns < clockwork::slower_ns() {
        return;
    }
    let slot = u64::from(timed_values::set(slot as u32, frame.part));
    here.add(slot, words::TOTAL, ns);
    here.add(slot, words::OWN, ns.saturating_sub(frame.callees));
    here.data.raise(here.slab, slot as u32 + words::LONGEST, ns);
    let duration = match ns {
        0 => 0,
        _ => 1 + tiptoe_event::bucket_of(ns) as u32,
    };
    here.add(slot, words::DURATIONS + duration, 1);
}

/// Counts as left the calls whose return addresses are below `to` on the stack, because the stack pointer is about to
/// move up to `to`. Otherwise these calls would end only when the next call returns.
pub fn cut(to: u64) {
    let Some(region) = Region::of_caller() else {
        return;
    };
    let here = CallSession::find();
    let left = |frame| here.as_ref().map_or((), |here| here.left(frame));
    let end = region.frames().cut(region.position(), to, left);
    region.set_position(end);
}

/// Counts all open calls of the calling thread as left, and makes them return directly, because the thread will lose
/// its thread-local block with its frames.
pub fn leave_all(shared: &Shared) {
    let Some(region) = Region::of_caller() else {
        return;
    };
    let here = CallSession::find();
    region.frames().bury(region.height(), |frame| {
        return_directly(shared, &frame);
        if let Some(here) = &here {
            here.left(frame);
        }
    });
    region.set_position(1);
}

fn return_directly(shared: &Shared, frame: &Frame) {
    let word = text::read_words(frame.slot); // the stack may be unmapped already
    if let Some((caller, _)) = word.and_then(|[word]| way_back(shared, word)) {
        // SAFETY: the word is the return address of a call that this thread is in.
        unsafe { (frame.slot as *mut u64).write(caller) };
    }
}

pub fn bury_dead(shared: &'static Shared) {
    // Relaxed: written before the session began.
    let pid = shared.pid.load(Relaxed);
    let Some(data) = shared.data() else { return };
    let alive = |owner| thread_alive(pid, owner);
    for index in 0..shared.claims.used() {
        if let Some(region) = Region::of(shared, index)
            && let Some(owner) = shared.claims.hold(index, gettid(), alive)
        {
            region.bury(&CallSession::of(shared, &data, index));
            shared.claims.release(index, owner);
        }
    }
}
