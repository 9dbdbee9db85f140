//! Handles a thread's entry into a *scope* and its exit. A scope is the program's label for its work, reported through
//! [`crate::ports`]. Signal handlers run this code, so it must neither lock nor wait.
//!
//! A thread's records are in its *slab*, its block of counters, at the session's offset for scopes. The nodes (each a
//! scope within a parent, [`tiptoe_label::nodes`]), which all threads share, are in slab 0. A thread without a slab is
//! in no scope. A forked child records nothing, because its descriptors (slabs' addresses) are wiped.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use tiptoe_label::switch::Thread;
use tiptoe_port::{Label, RESUMES};
use tiptoe_wire::scopes::{STAMP, WIDTH};
use tiptoe_wire::{Geometry, Words};

use crate::clockwork;
use crate::hit::first_slab;
use crate::memory;
use crate::tls;

/// Where a session records scopes. [`begin`] sets all words, [`end`] clears `shared`.
struct ScopeWords {
    /// The address of the words of slab 0; 0 if the session records no scopes.
    shared: AtomicU64,
    /// The byte offset of a thread's words in its slab.
    offset: AtomicU64,
    /// The start and length of all slabs.
    slabs: [AtomicU64; 2],
    /// The number of sessions that recorded scopes. It is never reset, because the tokens of open scopes contain it.
    sessions: AtomicU64,
}

static WORDS: ScopeWords = ScopeWords {
    shared: AtomicU64::new(0),
    offset: AtomicU64::new(0),
    slabs: [const { AtomicU64::new(0) }; 2],
    sessions: AtomicU64::new(0),
};

pub fn begin(slot: Option<u32>, slabs: [u64; 2]) {
    let Some(slot) = slot else { return };
    let offset = u64::from(slot) * 8;
    let shared = slabs[0] + offset;
    // The memory is populated now, because a later page fault's time would count for the scope that touches it first.
    memory::populate(shared as usize, WIDTH as usize * 8);
    // Relaxed, here and below: one thread begins sessions, and the last store publishes the others.
    let session = WORDS.sessions.fetch_add(1, Relaxed) + 1;
    area(shared).store(STAMP as usize, session & 0xffff_ffff);
    WORDS.offset.store(offset, Relaxed);
    let [begin, end] = slabs;
    for (word, value) in WORDS.slabs.iter().zip([begin, end - begin]) {
        word.store(value, Relaxed);
    }
    WORDS.shared.store(shared, Release); // pairs with the load in `find`
}

pub fn end() {
    WORDS.shared.store(0, Relaxed); // Relaxed: the old address stays mapped
}

pub fn calls() -> [u64; 2] {
    [enter as *const () as u64, leave as *const () as u64]
}

fn area(at: u64) -> Words<'static> {
    // SAFETY: in a session that records scopes, each slab has this many words here, which stay mapped for ever.
    unsafe { Words::from_raw(at as *const u8, WIDTH as usize * 8) }
}

#[inline(always)]
fn find() -> Option<Thread<'static>> {
    let shared = WORDS.shared.load(Acquire); // pairs with `begin`
    // SAFETY: a thread's word always points to a descriptor, its own or `EMPTY_DESCRIPTOR`.
    let descriptor = unsafe { &*(tls::descriptor() as *const AtomicU64) };
    let slab = descriptor.load(Relaxed);
    let [begin, len] = WORDS.slabs.each_ref().map(|word| word.load(Relaxed));
    // The thread has no slab, or was preempted after it read an earlier session's slab.
    if shared == 0 || slab.wrapping_sub(begin) >= len {
        return None;
    }
    let own = area(slab + WORDS.offset.load(Relaxed));
    Some(Thread::new(head(slab), own, area(shared)))
}

/// Returns the node of the scope that a slab's thread is in; 0 if the session records no scopes.
#[inline(always)]
pub fn of(slab: u64) -> u64 {
    head(slab).load(Geometry::SCOPE as usize)
}

#[inline(always)]
fn head(slab: u64) -> Words<'static> {
    // SAFETY: each slab has these words before all others, and stays mapped for ever.
    unsafe { Words::from_raw(slab as *const u8, Geometry::FIRST_SLOT as usize * 8) }
}

/// The `begin` of a port of scopes.
extern "C" fn enter(label: *const Label, what: u64) -> u64 {
    match find() {
        Some(thread) => enters(thread, label, what),
        None => enter_first(label, what),
    }
}

#[inline(always)]
fn enters(thread: Thread<'static>, label: *const Label, what: u64) -> u64 {
    let name = || {
        // SAFETY: this is a label of the program, which never moves.
        unsafe { &*label }.text().as_bytes()
    };
    thread.enters(label as u64, what & RESUMES != 0, clockwork::ticks(), name)
}

#[cold]
#[inline(never)]
extern "C" fn enter_first(label: *const Label, what: u64) -> u64 {
    // Acquire: as in `find`.
    if WORDS.shared.load(Acquire) == 0 || first_slab() == 0 {
        return 0;
    }
    find().map_or(0, |thread| enters(thread, label, what))
}

/// The `end` of a port of scopes.
extern "C" fn leave(token: u64, _what: u64) {
    match find() {
        Some(thread) => thread.leaves(token, clockwork::ticks()),
        None => leave_again(token),
    }
}

/// Leaves a scope in a thread that lost its slab when it created a child.
#[cold]
#[inline(never)]
extern "C" fn leave_again(token: u64) {
    // Acquire: as in `find`.
    if WORDS.shared.load(Acquire) != 0
        && first_slab() != 0
        && let Some(thread) = find()
    {
        thread.leaves(token, clockwork::ticks());
    }
}
