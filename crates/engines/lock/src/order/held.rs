//! What this thread holds, and what it has asked for before.

use core::cell::{Cell, RefCell};
use core::ptr::from_ref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread_local;
use std::vec;
use std::vec::Vec;

use super::graph::{self, Edge, Found};
use super::report::{self, Fault, Report, Side, Step};
use super::rules::{Held, Wants};
use crate::told::{Lock, Mode};

/// Pairs that a thread remembers.
const KNOWN: usize = 256;

thread_local! {
    static HELD: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    static SEEN: [Cell<Option<Edge>>; KNOWN] = const { [const { Cell::new(None) }; KNOWN] };
    /// Whether this is the validator itself, or whom it reports to.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Locks that were given back by another thread than took them, as guards may be sent, and the
/// number of each: whoever took one has a lesser number noted with it, and whoever takes it next
/// another, as giving it back comes before. So nobody drops what is his own. Of one that is shared
/// it may be another reader's that goes.
static LET_GO: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
/// How many these are. It orders nothing: the mutex does.
static LET_GO_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The last number. The lock that is given back orders it for whoever takes that next.
static LET_GO_LAST: AtomicU64 = AtomicU64::new(0);
/// So many are kept: some are of threads that have ended.
const LET_GO_MOST: usize = 256;

/// A lock that is held, or wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    node: u32,
    held: Held,
    side: Side,
    /// What was the last number in [`LET_GO`] when it was taken.
    since: u64,
}

impl Entry {
    pub(super) fn new(lock: &Lock, node: u32, mode: Mode) -> Entry {
        Entry {
            node,
            held: Held::of(mode),
            side: Side {
                address: lock.address,
                name: lock.name,
                depth: lock.depth,
                mode,
                site: lock.site,
            },
            since: LET_GO_LAST.load(Relaxed),
        }
    }
}

/// Runs `work` on what is held, but not for the validator itself.
fn with_held(work: impl FnOnce(&RefCell<Vec<Entry>>)) {
    if !BUSY.get() {
        // A thread that ends has no list any more, and is not checked.
        HELD.try_with(work).unwrap_or(());
    }
}

pub(super) fn push(entry: Entry) {
    with_held(|held| held.borrow_mut().push(entry));
}

/// What was held so is held in this mode from now on.
pub(super) fn change(address: usize, from: Held, to: Mode) {
    with_held(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = find(&held, address, from) {
            held[at].held = Held::of(to);
            held[at].side.mode = to;
        }
    });
}

pub(super) fn pop(address: usize, as_held: Held) {
    with_held(|held| {
        let mut held = held.borrow_mut();
        match find(&held, address, as_held) {
            Some(at) => drop(held.remove(at)),
            None => {
                let mut let_go = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
                if let_go.len() == LET_GO_MOST {
                    let_go.remove(0);
                }
                let_go.push((address, LET_GO_LAST.fetch_add(1, Relaxed) + 1));
                LET_GO_COUNT.store(let_go.len(), Relaxed);
            }
        }
    });
}

fn find(held: &[Entry], address: usize, as_held: Held) -> Option<usize> {
    held.iter()
        .rposition(|entry| entry.side.address == address && entry.held == as_held)
}

/// Drops what others have given back.
fn tidy(held: &mut Vec<Entry>) {
    if LET_GO_COUNT.load(Relaxed) == 0 {
        return;
    }
    let mut let_go = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
    let_go.retain(|(address, number)| {
        let is_its = |entry: &Entry| entry.side.address == *address && entry.since < *number;
        let at = held.iter().position(is_its);
        at.map(|at| held.remove(at)).is_none()
    });
    LET_GO_COUNT.store(let_go.len(), Relaxed);
}

/// Somebody would wait for a lock.
pub(super) fn check(wanted: &Entry, wants: Wants) {
    with_held(|held| {
        tidy(&mut held.borrow_mut());
        let held = held.borrow();
        if held.is_empty() {
            return;
        }
        BUSY.set(true);
        let _done = crate::hook::OnDrop::new(|| BUSY.set(false));
        if has_it_already(&held, wanted, wants) {
            return;
        }
        let others = held
            .iter()
            .filter(|entry| entry.side.address != wanted.side.address);
        others.for_each(|entry| check_pair(entry, wanted, wants));
    });
}

/// Whether the thread has the lock, so that there is no order to look at.
fn has_it_already(held: &[Entry], wanted: &Entry, wants: Wants) -> bool {
    let mut same = held
        .iter()
        .filter(|entry| entry.side.address == wanted.side.address);
    let reads_again = wants == Wants::Again;
    let waits = |entry: &&Entry| wants.waits_for(entry.held);
    if let Some(entry) = same.clone().find(waits) {
        tell_of_one(Fault::Recursion, entry, wanted);
        return true;
    }
    // It is let in at once.
    reads_again && same.next().is_some()
}

fn check_pair(entry: &Entry, wanted: &Entry, wants: Wants) {
    if entry.node == wanted.node {
        if wants.waits_for(entry.held) {
            tell_of_one(Fault::SameClass, entry, wanted);
        }
        return;
    }
    let edge = Edge {
        from: entry.node,
        held: entry.held,
        to: wanted.node,
        wants,
    };
    // Of a product the upper bits depend on all of it.
    let mixed = edge.from.wrapping_mul(31).wrapping_add(edge.to);
    let place = (mixed.wrapping_mul(0x9e37_79b9) >> 24) as usize % KNOWN;
    if SEEN.with(|seen| seen[place].get()) == Some(edge) {
        return;
    }
    let found = graph::add(edge, || Step::new(entry.side, wanted.side));
    if let Found::Ring(steps) = found {
        let fault = Fault::Inversion;
        report::tell(&Report { fault, steps });
    }
    SEEN.with(|seen| seen[place].set(Some(edge)));
}

/// Tells of what one thread does by itself, once for each pair of call sites.
fn tell_of_one(fault: Fault, entry: &Entry, wanted: &Entry) {
    let places = [entry, wanted].map(|entry| from_ref(entry.side.site).addr());
    if graph::is_news(wanted.node, places) {
        let steps = vec![Step::new(entry.side, wanted.side)];
        report::tell(&Report { fault, steps });
    }
}
