//! The board that pairs waits with releases, under every interleaving of two who wake and
//! one who has waited.

extern crate std;

use loom::thread;
use std::sync::Arc;
use std::vec::Vec;

use tiptoe_sync::mutant::{AtomicU64, Edge, lose};
use tiptoe_wire::Words;

use crate::board::Board;
use crate::primitive::Ordering::{Acquire, Release};

struct Shared(Vec<AtomicU64>);

impl Shared {
    fn new() -> Arc<Shared> {
        Arc::new(Shared((0..8).map(|_| AtomicU64::new(0)).collect()))
    }

    fn board(&self) -> Board<'_> {
        Board::new(Words::new(&self.0))
    }
}

/// Each wakes at an address of its own from a call site of its own: whoever reads finds
/// no mixture of the two, and never one that is not finished.
fn wakes_do_not_mix() {
    loom::model(|| {
        let shared = Shared::new();
        let wake = |id: u64| {
            let shared = shared.clone();
            thread::spawn(move || shared.board().note(id, 100 + id, 10 + id))
        };
        let wakers = [wake(1), wake(2)];
        for id in [1, 2] {
            let found = shared.board().waker(id, 0, 99);
            assert!([None, Some(100 + id)].contains(&found), "{found:?}");
        }
        for waker in wakers {
            waker.join().unwrap();
        }
        let last = [1, 2].map(|id| shared.board().waker(id, 0, 99));
        assert_eq!(last.iter().flatten().count(), 1, "{last:?}");
    });
}

#[test]
fn model_wakes_do_not_mix() {
    wakes_do_not_mix();
}

/// One wakes twice at an address, from two call sites: who asks for the time of either finds
/// that one's, or none.
fn times_and_sites_belong_together(waker: Option<Edge>, waiter: Option<Edge>) {
    loom::model(move || {
        let shared = Shared::new();
        let other = shared.clone();
        let wakes = thread::spawn(move || {
            lose(waker);
            other.board().note(1, 101, 11);
            other.board().note(1, 201, 21);
        });
        lose(waiter);
        let first = shared.board().waker(1, 10, 15);
        assert!([None, Some(101)].contains(&first), "{first:?}");
        let second = shared.board().waker(1, 20, 25);
        assert!([None, Some(201)].contains(&second), "{second:?}");
        lose(None);
        wakes.join().unwrap();
        assert_eq!(shared.board().waker(1, 20, 25), Some(201));
    });
}

#[test]
fn model_times_and_sites_belong_together() {
    times_and_sites_belong_together(None, None);
}

#[test]
#[should_panic]
fn mutant_note_without_release() {
    times_and_sites_belong_together(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic]
fn mutant_note_without_fence() {
    times_and_sites_belong_together(Some(Edge::Fence(Release)), None);
}

#[test]
#[should_panic]
fn mutant_waker_without_acquire() {
    times_and_sites_belong_together(None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic]
fn mutant_waker_without_fence() {
    times_and_sites_belong_together(None, Some(Edge::Fence(Acquire)));
}
