//! Loom models of two threads that record hand-overs of a lock, while one of them reads.

extern crate std;

use loom::thread;
use std::vec::Vec;

use tiptoe_sync::mutant::{Edge, lose};
use tiptoe_wire::Words;
use tiptoe_wire::futex::history::{AT, COUNT, FAMILIES, HOLDER, RINGS, SITE, WHO, WORDS};
use tiptoe_wire::futex::{WIDTH, history};

use crate::history::{HandOver, History, Release};
use crate::models::leak;
use crate::primitive::Ordering::{Acquire, Release as Published};

fn hand_over(id: u64) -> HandOver {
    HandOver {
        at: 10 + id,
        holder: id as u32,
        is_own: id == 1,
        release: Release {
            thread: id as u32,
            site: 100 + id,
        },
    }
}

type Reads = fn(Words<'static>, u64) -> Vec<HandOver>;

fn newest(words: Words<'static>, lock: u64) -> Vec<HandOver> {
    History::new(words).since(lock, 0, 0).collect()
}

/// A mutant of `newest` that accepts any checksum.
fn newest_unchecked(words: Words<'static>, _lock: u64) -> Vec<HandOver> {
    let places = (0..COUNT).map(|place| RINGS + 1 + FAMILIES + place * WORDS);
    let read = |place: u32| {
        let [at, who, site] = [AT, WHO, SITE].map(|word| words.load((place + word) as usize));
        let mask = (1 << HOLDER) - 1;
        let release = Release {
            thread: (who >> HOLDER & mask) as u32,
            site,
        };
        HandOver {
            at,
            holder: (who & mask) as u32,
            is_own: who & history::OWN != 0,
            release,
        }
    };
    places
        .map(read)
        .filter(|hand_over| hand_over.at != 0)
        .collect()
}

fn hand_overs_do_not_mix(reads: Reads, pusher: Option<Edge>) {
    loom::model(move || {
        let words = leak(WIDTH);
        let push = move |id: u64| History::new(words).push(id, &hand_over(id));
        let other = thread::spawn(move || {
            lose(pusher);
            push(1);
        });
        push(2);
        for lock in [1, 2] {
            let found = reads(words, lock);
            assert!(found.is_empty() || found == [hand_over(lock)], "{found:?}");
        }
        other.join().unwrap();
        for lock in [1, 2] {
            assert_eq!(reads(words, lock), [hand_over(lock)]);
        }
    });
}

#[test]
fn model_hand_overs_do_not_mix() {
    hand_overs_do_not_mix(newest, None);
}

#[test]
#[should_panic]
fn mutant_mixed_hand_overs_without_sum() {
    hand_overs_do_not_mix(newest_unchecked, None);
}

#[test]
#[should_panic]
fn mutant_place_in_two_steps() {
    hand_overs_do_not_mix(newest, Some(Edge::Exchange));
}

#[test]
fn model_overwritten_hand_overs_are_skipped() {
    loom::model(|| {
        let words = leak(WIDTH);
        let push = move |id: u64| History::new(words).push(7, &hand_over(id));
        push(1);
        let other = thread::spawn(move || {
            push(2);
            push(3);
        });
        let found = newest(words, 7);
        let times: Vec<u64> = found.iter().map(|hand_over| hand_over.at).collect();
        assert!(times.windows(2).all(|two| two[0] > two[1]), "{times:?}");
        assert!(found.iter().all(|one| *one == hand_over(one.at - 10)));
        other.join().unwrap();
        assert_eq!(newest(words, 7), [hand_over(3), hand_over(2)]);
    });
}

fn missing_hand_overs_are_noticed(pusher: Option<Edge>, reader: Option<Edge>) {
    loom::model(move || {
        let words = leak(WIDTH);
        let push = move |id: u64| History::new(words).push(7, &hand_over(id));
        let other = thread::spawn(move || {
            lose(pusher);
            for id in 1..=u64::from(COUNT) + 1 {
                push(id);
            }
        });
        lose(reader);
        let mut all = History::new(words).since(7, 0, 0);
        let found: Vec<u64> = all.by_ref().map(|one| one.at - 10).collect();
        // The reader found all hand-overs up to the newest, or knows that some are missing.
        let recorded = found.first().map_or(0, |last| *last as usize);
        assert!(found.len() == recorded || all.is_cut(), "{found:?}");
        other.join().unwrap();
    });
}

#[test]
fn model_missing_hand_overs_are_noticed() {
    missing_hand_overs_are_noticed(None, None);
}

#[test]
#[should_panic]
fn mutant_missing_without_acquire() {
    missing_hand_overs_are_noticed(None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic]
fn mutant_overwritten_without_fence() {
    missing_hand_overs_are_noticed(Some(Edge::Fence(Published)), None);
}

#[test]
#[should_panic]
fn mutant_missing_without_fence() {
    missing_hand_overs_are_noticed(None, Some(Edge::Fence(Acquire)));
}
