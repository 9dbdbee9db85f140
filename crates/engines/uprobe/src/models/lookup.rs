//! A lookup beside a writer finds what was there before or what is there after,
//! never a mixture, and never misses what stays.

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};

use super::{leak, leak_many};
use crate::lookup::{Lookup, Mapping, Place, Shape, Space};
use crate::primitive::{AtomicU64, Ordering::*};

const SHAPE: Shape = Shape {
    mappings: 6,
    probes: 3,
};
const ASKED: u64 = 25;

fn place(file: u32, offset: u64) -> Place {
    Place::new(file, offset).expect("small")
}

fn map(space: &Space, start: u64, end: u64, place: Place) {
    let mapping = Mapping { start, end, place };
    if let Some(writer) = space.write(1) {
        writer.insert(mapping).expect("room");
    }
}

/// The first file's mapping, and the probes of both.
fn space() -> &'static Space<'static> {
    let words = leak_many(SHAPE.words(), || AtomicU64::new(0));
    let space = leak(Space::new(words, SHAPE).expect("long enough"));
    map(space, 20, 30, place(1, 100));
    let writer = space.write(1).expect("nobody is in");
    for (at, probe) in [(place(1, 105), 1), (place(2, 210), 2), (place(2, 205), 3)] {
        writer.add_probe(at, probe).expect("room");
    }
    drop(writer);
    space
}

/// A reader asks while a writer changes the space.
fn find_against(
    change: fn(&Space),
    allowed: &'static [Option<u32>],
    [writer, reader]: [Option<Edge>; 2],
) {
    loom::model(move || {
        let space = space();
        let thread = spawn(move || {
            lose(reader);
            let found = match space.find(ASKED) {
                Lookup::Speculative(probe) => Some(probe),
                Lookup::Locked(found) => found,
                Lookup::Unsure => return,
            };
            assert!(allowed.contains(&found), "what is or was there: {found:?}");
        });
        lose(writer);
        change(space);
        thread.join().expect("an answer");
    });
}

/// Another file takes the place of the first. Its mapping begins elsewhere: one
/// start with the other place leads to the third probe, or to none.
fn replaced(lost: [Option<Edge>; 2]) {
    let change = |space: &Space| map(space, 15, 35, place(2, 200));
    find_against(change, &[Some(1), Some(2)], lost);
}

/// Mappings come below: what is asked for moves within its block, and to another.
fn moved(lost: [Option<Edge>; 2]) {
    let change = |space: &Space| {
        map(space, 0, 5, place(2, 0));
        map(space, 6, 8, place(2, 50));
    };
    find_against(change, &[Some(1)], lost);
}

#[test]
fn one_file_or_the_other() {
    replaced([None, None]);
}

#[test]
fn what_stays_is_never_missed() {
    moved([None, None]);
}

#[test]
#[should_panic(expected = "what is or was there")]
fn mutant_change_without_fence() {
    replaced([Some(Edge::Fence(Release)), None]);
}

#[test]
#[should_panic(expected = "what is or was there")]
fn mutant_change_without_release() {
    replaced([Some(Edge::Access(Release)), None]);
}

#[test]
#[should_panic(expected = "what is or was there")]
fn mutant_look_without_fence() {
    replaced([None, Some(Edge::Fence(Acquire))]);
}

#[test]
#[should_panic(expected = "what is or was there")]
fn mutant_look_without_acquire() {
    replaced([None, Some(Edge::Access(Acquire))]);
}

#[test]
#[should_panic(expected = "what is or was there")]
fn mutant_fallback_without_lock() {
    moved([None, Some(Edge::Exchange)]);
}
