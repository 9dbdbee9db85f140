//! A lookup that races with a writer must find the old or the new mapping, never a mix or none.

use core::ops::Range;

use loom::thread::spawn;
use tiptoe_sync::mutant::{Edge, lose};

use super::{leak, leak_many};
use crate::lookup::{FileOffset, Lookup, Mapping, Shape, Space};
use crate::mapping::PAGE;
use crate::primitive::{AtomicU64, Ordering::*};

/// Enough tables for eight pages.
const SHAPE: Shape = Shape {
    tables: 7,
    probes: 5,
};
const WITHIN: u64 = 5;

fn file_offset(file: u32, page: u64) -> FileOffset {
    FileOffset::new(file, page * PAGE).expect("small")
}

fn map(space: &Space, pages: Range<u64>, file_offset: FileOffset) {
    let mapping = Mapping {
        start: pages.start * PAGE,
        end: pages.end * PAGE,
        file_offset,
    };
    if let Some(writer) = space.write(1) {
        writer.insert(mapping).expect("room");
    }
}

fn unmap(space: &Space, page: u64) {
    if let Some(writer) = space.write(1) {
        writer.remove(page * PAGE..(page + 1) * PAGE).expect("room");
    }
}

fn space(pages: Range<u64>) -> &'static Space<'static> {
    let words = leak_many(SHAPE.words(), || AtomicU64::new(0));
    let space = leak(Space::new(words, SHAPE).expect("long enough"));
    map(space, pages, file_offset(1, 1));
    let writer = space.write(1).expect("no other writer");
    for (file, page, probe) in [(1, 1, 1), (2, 1, 2), (2, 3, 3)] {
        let at = file_offset(file, page).plus(WITHIN);
        writer.add_probe(at, probe, |_| true).expect("room");
    }
    drop(writer);
    space
}

fn find_against(
    pages: Range<u64>,
    change: fn(&Space),
    allowed: &'static [Option<u32>],
    [writer, reader]: [Option<Edge>; 2],
) {
    loom::model(move || {
        let space = space(pages.clone());
        let address = pages.start * PAGE + WITHIN;
        let thread = spawn(move || {
            lose(reader);
            let found = match space.find(address, 1, |probe| probe < 4) {
                Lookup::Speculative(probe) => Some(probe),
                Lookup::Locked(found) => found,
                Lookup::Unsure => return,
            };
            assert!(allowed.contains(&found), "old or new mapping: {found:?}");
        });
        lose(writer);
        change(space);
        thread.join().expect("an answer");
    });
}

/// The mapping becomes another file's. Its table is reused for addresses where an unchecked reader would find the third
/// probe.
fn reused(lost: [Option<Edge>; 2]) {
    let change = |space: &Space| map(space, 2..7, file_offset(2, 1));
    find_against(2..3, change, &[Some(1), Some(2)], lost);
}

/// Unmapping the last page replaces one entry by two tables.
fn split(lost: [Option<Edge>; 2]) {
    find_against(4..8, |space| unmap(space, 7), &[Some(1)], lost);
}

fn linked(lost: [Option<Edge>; 2]) {
    let change = |space: &Space| {
        if let Some(writer) = space.write(1) {
            let at = file_offset(1, 1).plus(WITHIN);
            writer.add_probe(at, 4, |_| false).expect("room");
        }
    };
    find_against(2..3, change, &[Some(1)], lost);
}

#[test]
fn a_probe_that_another_is_put_before_is_never_missed() {
    linked([None, None]);
}

#[test]
#[should_panic(expected = "old or new mapping")]
fn mutant_link_without_lock() {
    linked([None, Some(Edge::Exchange)]);
}

#[test]
fn a_reused_table_is_never_accepted() {
    reused([None, None]);
}

#[test]
fn a_mapping_that_stays_is_never_missed() {
    split([None, None]);
}

#[test]
#[should_panic(expected = "old or new mapping")]
fn mutant_change_without_fence() {
    reused([Some(Edge::Fence(Release)), None]);
}

#[test]
#[should_panic(expected = "old or new mapping")]
fn mutant_change_without_release() {
    reused([Some(Edge::Access(Release)), None]);
}

#[test]
#[should_panic(expected = "old or new mapping")]
fn mutant_look_without_fence() {
    reused([None, Some(Edge::Fence(Acquire))]);
}

#[test]
#[should_panic(expected = "old or new mapping")]
fn mutant_look_without_acquire() {
    reused([None, Some(Edge::Access(Acquire))]);
}

#[test]
#[should_panic(expected = "old or new mapping")]
fn mutant_fallback_without_lock() {
    split([None, Some(Edge::Exchange)]);
}
