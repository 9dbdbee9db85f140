//! Edge G has no mutant. Its loss would show only in a load of a later store, which loom never allows.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::vec::Vec;

use tiptoe_sync::mutant::{Edge, Ordering::*, interrupt, lose, was_missed};

use super::{Box, std, words};
use crate::ring::{CELL_WORDS, CELLS, Entry, Reader, Record, Ring};

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn ring() -> Ring<'static> {
    Ring::new(words(8), words(CELLS * CELL_WORDS)).expect("long enough")
}

fn call(number: u64) -> Record {
    Record {
        at: 100 + number,
        slot: 100 + number as u32,
        args: [200 + number, 300 + number],
    }
}

fn read(ring: &Ring, reader: &mut Reader, patience: u32) -> (Vec<u64>, u64) {
    let mut numbers = Vec::new();
    let lost = reader.read(ring, patience, |entry| match entry {
        Entry::Call(record) => {
            let number = record.at.wrapping_sub(100);
            assert_eq!(record, call(number), "each record is whole");
            numbers.push(number);
        }
        Entry::Thread { .. } => panic!("no thread was announced"),
    });
    (numbers, lost)
}

fn written_and_read([writer, looker]: [Option<Edge>; 2]) {
    loom::model(move || {
        let (ring, turn) = (ring(), words(1));
        // loom reorders two threads' accesses to a word only if no other access to the word is between them. A push
        // loads the head before it moves the head, and this load is in between. So each push first accesses another
        // shared word.
        let take_turn = move || turn.at(0).map(|turn| turn.fetch_add(1, Relaxed));
        let thread = loom::thread::spawn(move || {
            lose(writer);
            let push = |number: &u64| take_turn().is_some() && ring.push(&call(*number));
            (0..=CELLS as u64).filter(push).collect::<Vec<u64>>()
        });
        lose(looker);
        let mut reader = Reader::default();
        let mut seen = Vec::new();
        for _ in 0..2 {
            take_turn();
            let (numbers, lost) = read(&ring, &mut reader, 1000);
            seen.extend(numbers);
            assert_eq!(lost, 0, "no cell is given up");
        }
        let written = thread.join().expect("written");
        lose(None);
        seen.extend(read(&ring, &mut reader, 1000).0);
        assert_eq!(seen, written, "each record is read once, in order");
    });
}

#[test]
fn records_are_read_whole_and_once() {
    written_and_read([None, None]);
}

#[test]
#[should_panic(expected = "each record is whole")]
fn mutant_cell_without_release() {
    written_and_read([Some(Edge::Access(Release)), None]);
}

#[test]
#[should_panic(expected = "each record is whole")]
fn mutant_cell_without_acquire() {
    written_and_read([None, Some(Edge::Access(Acquire))]);
}

/// Runs a model for each step before which a handler can run. The model returns whether the handler ran.
fn at_each_step(model: impl Fn(usize) -> bool + Copy + Send + Sync + 'static) {
    for nth in 0.. {
        let reached = leak(AtomicBool::new(true));
        loom::model(move || reached.store(model(nth), Relaxed));
        if !reached.load(Relaxed) {
            return;
        }
    }
}

fn interrupted(lost: Option<Edge>) {
    at_each_step(move |nth| {
        let (ring, handled) = (ring(), leak(Mutex::new(Vec::new())));
        let push = move |numbers: [u64; 2]| {
            let numbers = numbers.into_iter();
            numbers.filter(move |number| ring.push(&call(*number)))
        };
        lose(lost);
        interrupt(nth, move || {
            handled.lock().expect("no panic").extend(push([7, 8]));
        });
        let mut taken: Vec<u64> = push([1, 2]).collect();
        let came = !was_missed();
        lose(None);
        taken.extend(handled.lock().expect("no panic").iter());
        let (mut seen, given_up) = read(&ring, &mut Reader::default(), 0);
        (seen.sort_unstable(), taken.sort_unstable());
        assert_eq!((seen, given_up), (taken, 0), "every record is read once");
        came
    });
}

#[test]
fn a_handler_may_record_at_any_step() {
    interrupted(None);
}

#[test]
#[should_panic(expected = "every record is read once")]
fn mutant_torn_reserve() {
    interrupted(Some(Edge::Exchange));
}

/// The reader gives up a cell whose thread is in a handler that keeps recording.
#[test]
fn a_cell_that_was_given_up_is_never_read() {
    at_each_step(|nth| {
        let (ring, reader) = (ring(), leak(Mutex::new(Reader::default())));
        let look = move || read(&ring, &mut reader.lock().expect("no panic"), 0);
        interrupt(nth, move || {
            for number in 10..10 + 2 * CELLS as u64 {
                ring.push(&call(number));
                look();
            }
        });
        ring.push(&call(1));
        let came = !was_missed();
        ring.push(&call(2));
        look();
        came
    });
}
