//! Edge I has no mutant. Its loss would show only in a load of a later store, which loom never allows.

use std::vec::Vec;

use tiptoe_sync::mutant::{Edge, Ordering::*, lose};

use super::{std, words};
use crate::hits::{HitReader, Hits, WORDS};

fn written_and_read([writer, looker]: [Option<Edge>; 2]) {
    loom::model(move || {
        let hits = Hits::new(words(WORDS as usize)).expect("long enough");
        let turn = words(1);
        // Lets loom reorder the threads' pushes, as `ring.rs` explains.
        let take_turn = move || turn.at(0).map(|turn| turn.fetch_add(1, Relaxed));
        let push = move |number: u64| {
            take_turn();
            let cell = hits.reserve();
            cell.map(|cell| cell.complete(number)).is_some()
        };
        let thread = loom::thread::spawn(move || {
            lose(writer);
            push(1)
        });
        lose(looker);
        let mut reader = HitReader::default();
        let mut seen = Vec::new();
        let mut look = |is_end| {
            take_turn();
            let left = reader.read(&hits, is_end, |read| {
                let number = read.bytes();
                assert!(number > 0, "each hit is whole");
                seen.push(number);
            });
            assert_eq!(left, 0, "no hit is skipped");
        };
        look(false);
        let second = push(2);
        look(false);
        let first = thread.join().expect("written");
        lose(None);
        look(true);
        seen.sort_unstable();
        let taken = [(first, 1), (second, 2)].into_iter();
        let taken: Vec<u64> = taken.filter(|(is, _)| *is).map(|(_, n)| n).collect();
        assert_eq!(seen, taken, "every hit is read once");
    });
}

#[test]
fn hits_are_read_whole_and_once() {
    written_and_read([None, None]);
}

#[test]
#[should_panic(expected = "each hit is whole")]
fn mutant_hit_without_release() {
    written_and_read([Some(Edge::Access(Release)), None]);
}

#[test]
#[should_panic(expected = "each hit is whole")]
fn mutant_hit_without_acquire() {
    written_and_read([None, Some(Edge::Access(Acquire))]);
}

#[test]
#[should_panic(expected = "every hit is read once")]
fn mutant_torn_reserve() {
    written_and_read([Some(Edge::Exchange), Some(Edge::Exchange)]);
}

fn rested_and_woken([agent, thread]: [Option<Edge>; 2]) {
    loom::model(move || {
        let hits = Hits::new(words(WORDS as usize)).expect("long enough");
        let all_on = words(1);
        all_on.store(0, 1);
        let waker = loom::thread::spawn(move || {
            lose(agent);
            assert!(hits.set_resting(true));
            all_on.store(0, 0);
            hits.set_waking(true);
            hits.set_resting(false);
            all_on.store(0, 1);
            hits.set_waking(false);
        });
        lose(thread);
        let epoch = hits.epoch();
        match (epoch.is_gap, epoch.number) {
            (true, _) | (false, 0) => {}
            (false, number) => {
                assert_eq!(number, 2, "no epoch begins during a rest");
                assert_eq!(all_on.load(0), 1, "all events are enabled");
            }
        }
        waker.join().expect("the events are enabled");
        lose(None);
        let last = hits.epoch();
        assert_eq!((last.number, last.is_gap), (2, false), "the last epoch");
    });
}

#[test]
fn no_epoch_is_reported_while_events_are_disabled() {
    rested_and_woken([None, None]);
}

#[test]
#[should_panic(expected = "no epoch begins during a rest")]
fn mutant_rest_and_wake_without_release() {
    rested_and_woken([Some(Edge::Access(AcqRel)), None]);
}

#[test]
#[should_panic(expected = "no epoch begins during a rest")]
fn mutant_epoch_without_acquire() {
    rested_and_woken([None, Some(Edge::Access(Acquire))]);
}
