//! The locks that this thread holds, and the edges that it has added to the graph.

use core::cell::{Cell, RefCell};
use core::ptr::from_ref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread_local;
use std::vec;
use std::vec::Vec;

use super::graph::{self, AddedEdge, Edge};
use super::report::{self, Fault, Report, Side, Step};
use super::rules::{HeldAs, WantedAs};
use crate::acquisition::{Lock, Mode};

const SEEN_LEN: usize = 256;

thread_local! {
    static HELD_LOCKS: RefCell<Vec<HeldLock>> = const { RefCell::new(Vec::new()) };
    static SEEN: [Cell<Option<Edge>>; SEEN_LEN] = const { [const { Cell::new(None) }; SEEN_LEN] };
    /// Set while the validator runs, because a reporter that takes a checked lock would recurse without end.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Releases by threads that got the guard from another thread, the sender: the lock's address, the release's number.
/// The sender's next check removes the lock from its list, if the number is above the entry's `since`. If several
/// threads read the lock, another reader may wrongly remove its own entry instead.
static LET_GO: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
/// The length of [`LET_GO`]. Relaxed: only a hint to lock the mutex, which orders the rest.
static LET_GO_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The last number in [`LET_GO`]. Relaxed: the lock itself orders a release before the next acquisition, which loads
/// this number.
static LET_GO_LAST: AtomicU64 = AtomicU64::new(0);
/// The most releases in [`LET_GO`]. A new release replaces the oldest, whose sender may have ended.
const LET_GO_MOST: usize = 256;

#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLock {
    node: u32,
    held_as: HeldAs,
    side: Side,
    since: u64,
}

impl HeldLock {
    pub(super) fn new(lock: &Lock, node: u32, mode: Mode) -> HeldLock {
        HeldLock {
            node,
            held_as: HeldAs::of(mode),
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

fn with_held(work: impl FnOnce(&RefCell<Vec<HeldLock>>)) {
    if !BUSY.get() {
        // An ending thread may have dropped its list.
        HELD_LOCKS.try_with(work).unwrap_or(());
    }
}

pub(super) fn push(entry: HeldLock) {
    with_held(|held| held.borrow_mut().push(entry));
}

pub(super) fn change(address: usize, from: HeldAs, to: Mode) {
    with_held(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = find(&held, address, from) {
            held[at].held_as = HeldAs::of(to);
            held[at].side.mode = to;
        }
    });
}

pub(super) fn pop(address: usize, as_held: HeldAs) {
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

fn find(held: &[HeldLock], address: usize, as_held: HeldAs) -> Option<usize> {
    held.iter()
        .rposition(|entry| entry.side.address == address && entry.held_as == as_held)
}

fn tidy(held: &mut Vec<HeldLock>) {
    if LET_GO_COUNT.load(Relaxed) == 0 {
        return;
    }
    let mut let_go = LET_GO.lock().unwrap_or_else(PoisonError::into_inner);
    let_go.retain(|(address, number)| {
        let is_its = |entry: &HeldLock| entry.side.address == *address && entry.since < *number;
        let at = held.iter().position(is_its);
        at.map(|at| held.remove(at)).is_none()
    });
    LET_GO_COUNT.store(let_go.len(), Relaxed);
}

pub(super) fn check(wanted: &HeldLock, wants: WantedAs) {
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

/// Reports a thread that wants a lock and would wait for itself. Returns `true` if the order needs no check: after such
/// a report, or for a recursive read of a held lock.
fn has_it_already(held: &[HeldLock], wanted: &HeldLock, wants: WantedAs) -> bool {
    let mut same = held
        .iter()
        .filter(|entry| entry.side.address == wanted.side.address);
    let reads_again = wants == WantedAs::Again;
    let waits = |entry: &&HeldLock| wants.waits_for(entry.held_as);
    if let Some(entry) = same.clone().find(waits) {
        report_single(Fault::Recursion, entry, wanted);
        return true;
    }
    reads_again && same.next().is_some()
}

fn check_pair(entry: &HeldLock, wanted: &HeldLock, wants: WantedAs) {
    if entry.node == wanted.node {
        if wants.waits_for(entry.held_as) {
            report_single(Fault::SameClass, entry, wanted);
        }
        return;
    }
    let edge = Edge {
        from: entry.node,
        held_as: entry.held_as,
        to: wanted.node,
        wanted_as: wants,
    };
    // The product's upper bits depend on all bits of `mixed`.
    let mixed = edge.from.wrapping_mul(31).wrapping_add(edge.to);
    let place = (mixed.wrapping_mul(0x9e37_79b9) >> 24) as usize % SEEN_LEN;
    if SEEN.with(|seen| seen[place].get()) == Some(edge) {
        return;
    }
    let found = graph::add(edge, || Step::new(entry.side, wanted.side));
    if let AddedEdge::Ring(steps) = found {
        let fault = Fault::Inversion;
        report::send(&Report { fault, steps });
    }
    SEEN.with(|seen| seen[place].set(Some(edge)));
}

fn report_single(fault: Fault, entry: &HeldLock, wanted: &HeldLock) {
    let places = [entry, wanted].map(|entry| from_ref(entry.side.site).addr());
    if graph::is_new_fault(wanted.node, places) {
        let steps = vec![Step::new(entry.side, wanted.side)];
        report::send(&Report { fault, steps });
    }
}
