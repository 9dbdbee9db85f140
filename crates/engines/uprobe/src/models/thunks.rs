//! Threads that add a thunk (the stub that a call returns to) for one return address at once must all return there. A
//! found entry must be whole.

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};

use super::{leak, leak_many};
use crate::primitive::{AtomicU64, Ordering::*};
use crate::thunks::{RECORD_WORDS, Thunk, Thunks};

const CODE: u64 = 0x10_0000;
const ROOM: usize = 2;
/// With [`SAME`] all keys have one hash, so threads must search on.
const BITS: u8 = 1;
const SAME: u64 = 0;

struct Table {
    entries: &'static [AtomicU64],
    thunks: &'static Thunks<'static>,
}

fn table() -> Table {
    let cells = |count| leak_many(count, || AtomicU64::new(0));
    let entries = cells(2 * Thunks::entries(BITS));
    let thunks = leak(Thunks::new(entries, cells(ROOM * RECORD_WORDS), BITS, SAME));
    thunks.make(CODE, ROOM as u32);
    Table { entries, thunks }
}

fn thunk(to: u64) -> Thunk {
    Thunk {
        to,
        calls: to + 1,
        exit: to + 2,
        slot: 3,
        is_gate: false,
    }
}

/// Looks up a key as trampolines do.
fn look_up(entries: &[AtomicU64], key: u64) -> Option<u64> {
    for pair in entries.chunks(2) {
        match pair[0].load(Acquire) {
            0 => return None,
            // Relaxed: x86 loads in order, and the first is an Acquire.
            found if found == key => return Some(pair[1].load(Relaxed)),
            _ => {}
        }
    }
    None
}

fn two_come(places: [u64; 2], [lost, looker]: [Option<Edge>; 2]) {
    loom::model(move || {
        let Table { entries, thunks } = table();
        let other = spawn(move || {
            lose(lost);
            thunks.get(0, &thunk(places[1]), false)
        });
        let third = spawn(move || {
            lose(looker);
            if let Some(address) = look_up(entries, places[0]) {
                assert_ne!(address, 0, "an entry is whole");
                assert_eq!(thunks.at(address), Some(thunk(places[0])), "its own place");
            }
        });
        lose(lost);
        let own = thunks.get(0, &thunk(places[0]), false).expect("room");
        let others = other.join().expect("got").expect("room");
        third.join().expect("looked");
        lose(None);
        assert_eq!(thunks.at(own), Some(thunk(places[0])), "its own place");
        assert_eq!(thunks.at(others), Some(thunk(places[1])), "its own place");
        for place in places {
            let found = look_up(entries, place).and_then(|at| thunks.at(at));
            assert_eq!(found, Some(thunk(place)), "the thunk is found again");
        }
    });
}

const PLACES: [u64; 2] = [0x1000, 0x2000];

#[test]
fn threads_from_one_place_return_there() {
    two_come([0x1000, 0x1000], [None, None]);
}

#[test]
fn threads_from_two_places_are_not_mixed_up() {
    two_come(PLACES, [None, None]);
}

#[test]
#[should_panic(expected = "its own place")]
fn mutant_torn_number() {
    two_come(PLACES, [Some(Edge::Exchange), None]);
}

#[test]
#[should_panic(expected = "an entry is whole")]
fn mutant_key_without_release() {
    two_come(PLACES, [Some(Edge::Access(Release)), None]);
}

#[test]
#[should_panic(expected = "an entry is whole")]
fn mutant_key_without_acquire() {
    two_come(PLACES, [None, Some(Edge::Access(Acquire))]);
}
