//! A trapped thread must find its site (patched place), however many insertions run, once the site is inserted.

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};
use tiptoe_wire::{Head, MAX_HEADS, Site};

use super::{leak, leak_many};
use crate::primitive::{AtomicU64, Ordering::*};
use crate::table::Table;

const SITES: usize = 3;

fn table() -> &'static Table<'static> {
    let slot = || core::array::from_fn(|_| AtomicU64::new(0));
    leak(Table::new(leak_many(SITES, slot)))
}

fn site(address: u64) -> Site {
    let head = Head {
        offset: 0,
        resume: 7,
        is_guard: false,
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

fn find_against_insert(trapped: u64, agent: Option<Edge>, reader: Option<Edge>) {
    loom::model(move || {
        let table = table();
        insert(table, 20);
        let thread = spawn(move || {
            lose(reader);
            match table.find(trapped) {
                Some(found) => {
                    assert_eq!(found.site, site(trapped), "the record is whole");
                    assert_eq!(found.resume, trapped * 100 + 7, "the site's resume");
                }
                None => assert_ne!(trapped, 20, "a known site is found"),
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

fn mutant(agent: Option<Edge>, reader: Option<Edge>) {
    find_against_insert(20, agent, reader);
}

#[test]
#[should_panic(expected = "a known site is found")]
fn mutant_insert_without_release() {
    mutant(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic(expected = "a known site is found")]
fn mutant_find_without_acquire() {
    mutant(None, Some(Edge::Access(Acquire)));
}

#[test]
#[should_panic(expected = "a known site is found")]
fn mutant_merge_without_fence() {
    mutant(Some(Edge::Fence(Release)), None);
}

#[test]
#[should_panic(expected = "a known site is found")]
fn mutant_find_without_fence() {
    mutant(None, Some(Edge::Fence(Acquire)));
}

/// A thread traps at 20 while the first of two records for 20 becomes current again.
fn find_against_recall(agent: Option<Edge>, reader: Option<Edge>) {
    const FIRST: u64 = 2000;
    const SECOND: u64 = 2001;
    loom::model(move || {
        let table = table();
        insert(table, 20);
        let second = Site {
            trampoline: SECOND,
            ..site(20)
        };
        table.insert(1, |_| Some(second)).expect("room");
        let thread = spawn(move || {
            lose(reader);
            let found = table.find(20).expect("a known site is found");
            assert_eq!(found.site.address, 20, "the record is whole");
            assert!([FIRST, SECOND].contains(&found.site.trampoline));
            assert_eq!(found.resume, found.site.trampoline + 7, "the site's resume");
        });
        insert(table, 10);
        lose(agent);
        table.recall(|site| site.trampoline == FIRST);
        thread.join().expect("found");
        let found = table.find(20).expect("a known site is found");
        assert_eq!(found.site.trampoline, FIRST, "the recalled record is found");
    });
}

#[test]
fn a_site_is_found_while_it_is_recalled() {
    find_against_recall(None, None);
}

#[test]
#[should_panic(expected = "a known site is found")]
fn mutant_recall_without_release() {
    find_against_recall(Some(Edge::Access(Release)), None);
}

#[test]
#[should_panic(expected = "a known site is found")]
fn mutant_recall_without_fence() {
    find_against_recall(Some(Edge::Fence(Release)), None);
}

#[test]
#[should_panic(expected = "a known site is found")]
fn mutant_find_meets_recall_without_acquire() {
    find_against_recall(None, Some(Edge::Access(Acquire)));
}
