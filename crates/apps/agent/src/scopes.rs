//! A thread enters a scope or leaves it: what [`crate::ports`] has the program's libraries call. Also in signal
//! handlers: no lock, no libc, and nothing is waited for.
//!
//! What is noted lies in the thread's slab, from the session's scope slot on; the nodes, which all threads share, in
//! slab 0. A thread that has no slab is in no scope. In a forked child nothing is noted: its descriptors are wiped, and
//! it finds by one look that it is one.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tiptoe_label::switch::Thread;
use tiptoe_port::{Label, RESUMES};
use tiptoe_wire::scopes::{STAMP, WIDTH};
use tiptoe_wire::{Data, Geometry, Words};

use crate::clockwork;
use crate::locks::first_slab;
use crate::memory;
use crate::shared::Shared;
use crate::tls;

/// Where the words of slab 0 are; 0 where no session is about scopes.
static SHARED: AtomicU64 = AtomicU64::new(0);
/// How far behind a slab's beginning a thread's words are, in bytes; where the slabs begin, and their bytes.
static OFFSET: AtomicU64 = AtomicU64::new(0);
static SLABS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// How many sessions were about scopes.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// Says it for a session that begins, whose slabs are between these addresses.
pub fn begin(slot: Option<u32>, slabs: [u64; 2]) {
    let Some(slot) = slot else { return };
    let offset = u64::from(slot) * 8;
    let shared = slabs[0] + offset;
    // A thread that touched a page of the nodes first would have its page fault counted in the scope that it enters.
    memory::populate(shared as usize, WIDTH as usize * 8);
    // Relaxed, here and below: one thread begins sessions, and what it writes is published by the last store.
    let session = SESSIONS.fetch_add(1, Relaxed) + 1;
    area(shared).store(STAMP as usize, session & 0xffff_ffff);
    OFFSET.store(offset, Relaxed);
    let [begin, end] = slabs;
    for (word, value) in SLABS.iter().zip([begin, end - begin]) {
        word.store(value, Relaxed);
    }
    SHARED.store(shared, Release); // pairs with the load in `find`
}

/// The session is over.
pub fn end() {
    SHARED.store(0, Relaxed); // orders nothing: who comes late is told by its slab
}

/// What ports are given: `begin`, and `end`.
pub fn calls() -> [u64; 2] {
    [enter as *const () as u64, leave as *const () as u64]
}

fn area(at: u64) -> Words<'static> {
    // SAFETY: a slab of a session about scopes has this many words there, as tiptoe has it; there is memory at its
    // addresses for good.
    unsafe { Words::from_raw(at as *const u8, WIDTH as usize * 8) }
}

/// The words of the calling thread; nothing where it has none yet.
#[inline(always)]
fn find() -> Option<Thread<'static>> {
    let shared = SHARED.load(Acquire); // pairs with `begin`
    // SAFETY: a thread's word always points to a descriptor, its own or nobody's.
    let descriptor = unsafe { &*(tls::descriptor() as *const AtomicU64) };
    let slab = descriptor.load(Relaxed); // its own, or 0
    let [begin, len] = SLABS.each_ref().map(|word| word.load(Relaxed));
    // None, or that of another session: the thread may have been kept off its CPU in between.
    if shared == 0 || slab.wrapping_sub(begin) >= len {
        return None;
    }
    let own = area(slab + OFFSET.load(Relaxed));
    Some(Thread::new(head(slab), own, area(shared)))
}

/// The node that the thread of a slab is in; 0 where no session is about scopes.
#[inline(always)]
pub fn of(slab: u64) -> u64 {
    head(slab).load(Geometry::SCOPE as usize)
}

#[inline(always)]
fn head(slab: u64) -> Words<'static> {
    // SAFETY: each slab has these words in front of all others, and there is memory at its addresses for good.
    unsafe { Words::from_raw(slab as *const u8, Geometry::FIRST_SLOT as usize * 8) }
}

/// `begin` of a port of scopes.
extern "C" fn enter(label: *const Label, what: u64) -> u64 {
    match find() {
        Some(thread) => enters(thread, label, what),
        None => enter_first(label, what),
    }
}

#[inline(always)]
fn enters(thread: Thread<'static>, label: *const Label, what: u64) -> u64 {
    let name = || {
        // SAFETY: a label of the program's, which stays where it is.
        unsafe { &*label }.text().as_bytes()
    };
    thread.enters(label as u64, what & RESUMES != 0, clockwork::ticks(), name)
}

/// A thread's first scope of a session.
#[cold]
#[inline(never)]
extern "C" fn enter_first(label: *const Label, what: u64) -> u64 {
    // Acquire: as in `find`.
    if SHARED.load(Acquire) == 0 || first_slab() == 0 {
        return 0;
    }
    find().map_or(0, |thread| enters(thread, label, what))
}

/// `end` of a port of scopes.
extern "C" fn leave(token: u64, _what: u64) {
    match find() {
        Some(thread) => thread.leaves(token, clockwork::ticks()),
        None => leave_again(token),
    }
}

/// After a fork the thread that made it finds its slab again as it would find its first.
#[cold]
#[inline(never)]
extern "C" fn leave_again(token: u64) {
    // Acquire: as in `find`.
    if SHARED.load(Acquire) != 0
        && first_slab() != 0
        && let Some(thread) = find()
    {
        thread.leaves(token, clockwork::ticks());
    }
}

/// A slab is another thread's from now on: it is in no scope.
pub fn forget(state: &Shared, data: &Data, slab: u32) {
    let slot = state.scope_slot();
    let words = slot
        .and_then(|slot| data.slab_words(slab, slot, WIDTH))
        .zip(data.slab_words(slab, 0, Geometry::FIRST_SLOT));
    if let Some((own, head)) = words {
        Thread::new(head, own, own).forget();
    }
}
