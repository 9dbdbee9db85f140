//! Whoever traps is never sent astray, and finds what was there before it looked,
//! however many insertions overtake it.

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};
use tiptoe_wire::{Head, MAX_HEADS, SITE_WORDS, Site};

use super::{leak, leak_many};
use crate::primitive::{AtomicU64, Ordering::*};
use crate::table::Table;

const SITES: usize = 3;

fn table() -> &'static Table<'static> {
    let cells = |count| leak_many(count, || AtomicU64::new(0));
    leak(Table::new(
        cells(SITES * SITE_WORDS),
        [cells(SITES), cells(SITES)],
    ))
}

/// A site whose way out follows from its address.
fn site(address: u64) -> Site {
    let head = Head {
        offset: 0,
        resume: 7,
    };
    Site {
        address,
        trampoline: address * 100,
        len: 1,
        original: [address as u8; 8],
        head_count: 1,
        heads: [head; MAX_HEADS],
        ..Site::default()
    }
}

fn insert(table: &Table, address: u64) {
    table.insert(1, |_| Some(site(address))).expect("room");
}

/// A thread traps at `trapped` while the agent's thread inserts: 20 was there
/// before, 10 and 30 come, on either side, so that 20 moves in the order.
fn find_against_insert(trapped: u64, agent: Option<Edge>, reader: Option<Edge>) {
    loom::model(move || {
        let table = table();
        insert(table, 20);
        let thread = spawn(move || {
            lose(reader);
            match table.find(trapped) {
                Some(found) => {
                    assert_eq!(found.site, site(trapped), "the record is whole");
                    assert_eq!(found.resume, trapped * 100 + 7, "the way out");
                }
                None => assert_ne!(trapped, 20, "it was there before"),
            }
        });
        lose(agent);
        insert(table, 10);
        insert(table, 30);
        thread.join().expect("found or not");
    });
}

#[test]
fn a_known_site_is_found_whatever_overtakes() {
    find_against_insert(20, None, None);
}

#[test]
fn a_new_site_is_found_whole_or_not_at_all() {
    find_against_insert(10, None, None);
}

/// In a mutant a thread misses 20, or takes 20's place for another's.
fn mutant(agent: Option<Edge>, reader: Option<Edge>) {
    find_against_insert(20, agent, reader);
}

#[test]
#[should_panic(expected = "it was there before")]
fn mutant_insert_without_release() {
    mutant(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic(expected = "it was there before")]
fn mutant_find_without_acquire() {
    mutant(None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic(expected = "it was there before")]
fn mutant_merge_without_fence() {
    mutant(Some(Edge::Fence(Release)), None);
}

#[test]
#[should_panic(expected = "it was there before")]
fn mutant_find_without_fence() {
    mutant(None, Some(Edge::Fence(Acquire)));
}
