//! The board that pairs waits with releases, under every interleaving of two who wake and
//! one who has waited; and the waits of a thread, whatever a signal handler of its own does
//! in front of each of its accesses.

extern crate std;

use loom::thread;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use tiptoe_sync::mutant::{AtomicU64, Edge, interrupt, lose, was_missed};
use tiptoe_wire::Words;
use tiptoe_wire::futex::{ENTRIES, ENTRY_WORDS, WIDTH, entry, head};

use crate::activities::{Activities, Activity};
use crate::board::Board;
use crate::calls::{Call, Thread};
use crate::primitive::Ordering::{Acquire, Release};
use crate::walk::Caller;

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

fn leak(words: u32) -> Words<'static> {
    let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    Words::new(Box::leak(words.into_boxed_slice()))
}

fn wait(sp: u64) -> Activity {
    Activity {
        sp,
        address: sp + 1,
        site: sp + 2,
        via: sp + 3,
        since: sp + 4,
        operation: sp + 5,
        frame: sp + 6,
    }
}

/// Runs `thread` as often as it has accesses, and once more: a handler comes in front of
/// each of them in turn.
fn at_each_access(thread: impl Fn(usize) -> bool + Sync + Send + 'static + Copy) {
    let mut nth = 0;
    let mut missed = false;
    while !missed {
        let found = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let told = found.clone();
        loom::model(move || told.store(thread(nth), std::sync::atomic::Ordering::SeqCst));
        missed = found.load(std::sync::atomic::Ordering::SeqCst);
        nth += 1;
    }
    assert!(nth > 8, "it had only {nth} accesses");
}

/// A handler waits while its thread notes a wait, or takes one back: each finds its own.
#[test]
fn model_a_handlers_wait_is_inside_of_its_threads() {
    at_each_access(|nth| {
        let activities = Activities::new(leak(ENTRY_WORDS));
        interrupt(nth, move || {
            assert!(activities.push(&wait(900)));
            assert_eq!(activities.pop(900), Some(wait(900)));
        });
        assert!(activities.push(&wait(1000)));
        assert_eq!(activities.pop(1000), Some(wait(1000)));
        let missed = was_missed();
        assert_eq!(activities.iter().count(), 0);
        missed
    });
}

/// A handler waits and never comes back from it (it jumps away, or its thread is cancelled
/// there): the thread's next wait is its only one.
#[test]
fn model_a_wait_that_is_left_is_forgotten() {
    at_each_access(|nth| {
        let activities = Activities::new(leak(ENTRY_WORDS));
        interrupt(nth, move || {
            assert!(activities.push(&wait(900)));
        });
        activities.push(&wait(1000));
        let missed = was_missed();
        // It jumped out of both, and waits farther up.
        assert!(activities.push(&wait(2000)));
        let sps: Vec<u64> = activities.iter().map(|wait| wait.sp).collect();
        assert_eq!(sps, [2000]);
        assert_eq!(activities.pop(2000), Some(wait(2000)));
        missed
    });
}

/// A handler waits for the same lock as its thread, and wakes: no call is lost or counted
/// twice.
fn every_call_counts(thread: Option<Edge>) {
    at_each_access(move |nth| {
        let (own, shared) = (leak(WIDTH), leak(WIDTH));
        let calls = move |sp: u64, operation| {
            let thread = Thread::new(own, shared);
            let caller = Caller {
                site: 7,
                via: 8,
                frame: sp + 64,
            };
            thread.begins(&Call {
                address: 0x1000,
                operation,
                sp,
                caller,
                at: 9,
                now: 10,
                timed: true,
            });
            thread.ends(sp, 0, 20, |ticks| ticks);
        };
        interrupt(nth, move || {
            calls(900, 0x80);
            calls(900, 0x81);
        });
        lose(thread);
        calls(1000, 0x80);
        lose(None);
        let missed = was_missed();
        if missed {
            return true;
        }
        let sum = |word: u32| -> u64 {
            let blocks = 1..=ENTRIES;
            blocks
                .map(|b| own.load((b * ENTRY_WORDS + word) as usize))
                .sum()
        };
        assert_eq!(sum(entry::CALLS) + own.load(head::FULL as usize), 3);
        let all = [head::WAITS, head::WAKES].map(|word| own.load(word as usize));
        assert_eq!(all, [2, 1]);
        assert_eq!(sum(entry::SLEPT_NS), 20);
        false
    });
}

#[test]
fn model_every_call_counts() {
    every_call_counts(None);
}

#[test]
#[should_panic]
fn mutant_add_in_two_steps() {
    every_call_counts(Some(Edge::Exchange));
}
