//! Compares mappings with a trivial model, and looks up while another thread changes the space.
#![cfg(not(tiptoe_loom))]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;
use tiptoe_uprobe::lookup::{FileOffset, Lookup, Mapping, Shape, Space, SpaceError};

mod cells;
use cells::{Cells, Change};

const PAGE: u64 = 4096;
const ADDRESSES: u64 = 1024;
/// miri is several hundred times slower.
const LONG: usize = if cfg!(miri) { 20 } else { 700 };
const SHAPE: Shape = Shape {
    tables: 500,
    probes: if cfg!(miri) { 32 } else { 1024 },
};

fn storage(shape: Shape) -> Vec<AtomicU64> {
    (0..shape.words()).map(|_| AtomicU64::new(0)).collect()
}

fn file_offset(file: u64, offset: u64) -> FileOffset {
    FileOffset::new(file as u32, offset).expect("both are small")
}

fn pages(range: &Range<u64>) -> Range<u64> {
    range.start * PAGE..range.end * PAGE
}

fn mapping(range: Range<u64>, file: u64, offset: u64) -> Mapping {
    let Range { start, end } = pages(&range);
    Mapping {
        start,
        end,
        file_offset: file_offset(file, offset * PAGE),
    }
}

fn apply(space: &Space, change: &Change) -> Result<(), SpaceError> {
    let writer = space.write(1).expect("no other writer");
    match change {
        Change::Map(range, file, offset) => writer.insert(mapping(range.clone(), *file, *offset)),
        Change::Unmap(range) => writer.remove(pages(range)),
        Change::Move(from, to) => writer.remap(pages(from), pages(to)),
    }
}

fn runs(space: &Space) -> Vec<(u64, u64, u64, u64)> {
    let writer = space.write(1).expect("no other writer");
    let all = writer.mappings();
    all.map(|map| {
        (
            map.start / PAGE,
            map.end / PAGE,
            map.file_offset.file().into(),
            map.file_offset.offset() / PAGE,
        )
    })
    .collect()
}

/// Few files, with offsets that often match, so that neighbours merge.
fn change() -> impl Strategy<Value = Change> {
    let range = |longest: u64| {
        (0..ADDRESSES - longest, 0..=longest).prop_map(|(start, len)| start..start + len)
    };
    let map = (range(6), 0..3_u64, 0..4_u64)
        .prop_map(|(range, file, shift)| Change::Map(range.clone(), file, range.start + 8 * shift));
    let moved = (range(40), 0..ADDRESSES - 60, 0..60_u64).prop_map(|(from, start, len)| {
        let start = if len % 5 == 0 { from.start } else { start };
        Change::Move(from, start..(start + len).min(ADDRESSES))
    });
    prop_oneof![
        12 => map,
        3 => range(10).prop_map(Change::Unmap),
        1 => range(300).prop_map(Change::Unmap),
        2 => moved,
    ]
}

fn refused(change: &Change) -> bool {
    let Change::Move(from, to) = change else {
        return false;
    };
    to.is_empty() || !(from.end <= to.start || to.end <= from.start || from.start == to.start)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_page_table_agrees_with_the_model(changes in prop::collection::vec(change(), 1..LONG)) {
        let words = storage(SHAPE);
        let space = Space::new(&words, SHAPE).expect("long enough");
        let mut cells = Cells::new(ADDRESSES);
        for change in &changes {
            if refused(change) {
                prop_assert_eq!(apply(&space, change), Err(SpaceError::Overlap));
                continue;
            }
            prop_assert_eq!(apply(&space, change), Ok(()));
            cells.apply(change);
        }
        prop_assert_eq!(runs(&space), cells.runs());
        for address in 0..ADDRESSES {
            let found = space.resolve(address * PAGE + 77).value();
            let cell = cells.get(address).map(|(file, offset)| file_offset(file, offset * PAGE + 77));
            prop_assert_eq!(found, cell);
        }
    }

    #[test]
    fn a_whole_list_takes_the_place_of_any(
        before in prop::collection::vec(change(), 0..LONG / 2),
        after in prop::collection::vec(change(), 0..LONG / 2),
    ) {
        let words = storage(SHAPE);
        let space = Space::new(&words, SHAPE).expect("long enough");
        for change in &before {
            let _ = apply(&space, change); // may fail: an overlapping move
        }
        let mut cells = Cells::new(ADDRESSES);
        after.iter().filter(|change| !refused(change)).for_each(|change| cells.apply(change));
        let list = cells.runs().into_iter().map(|(start, end, file, offset)| {
            mapping(start..end, file, offset)
        });
        prop_assert_eq!(space.write(1).expect("no other writer").replace(list), Ok(()));
        prop_assert_eq!(runs(&space), cells.runs());
    }

    #[test]
    fn probes_agree_with_a_map(changes in prop::collection::vec((0..4_u64, 0..64_u64, any::<[bool; 2]>()), 0..LONG)) {
        let words = storage(SHAPE);
        let space = Space::new(&words, SHAPE).expect("long enough");
        let writer = space.write(1).expect("no other writer");
        for file in 0..4 {
            writer.insert(mapping(file..file + 1, file, 0)).expect("room");
        }
        let mut model: HashMap<_, Vec<u32>> = HashMap::new();
        for (index, (file, offset, [replaces, is_again])) in changes.iter().enumerate() {
            let all = model.entry((*file, *offset)).or_default();
            let probe = all.last().copied().filter(|_| *is_again).unwrap_or(index as u32);
            let at = file_offset(*file, *offset);
            let is_replaced = |other: u32| *replaces && other % 2 == 1;
            prop_assert_eq!(writer.add_probe(at, probe, is_replaced), Ok(()));
            all.retain(|other| *other != probe && !is_replaced(*other));
            all.insert(0, probe);
        }
        drop(writer);
        for (file, offset) in (0..4).flat_map(|file| (0..64).map(move |offset| (file, offset))) {
            let all = model.get(&(file, offset)).map_or(&[][..], Vec::as_slice);
            let address = file * PAGE + offset;
            prop_assert_eq!(space.find(address, 1, |_| true).value(), all.first().copied());
            for probe in all {
                prop_assert!(space.has_probe(*probe));
                prop_assert_eq!(space.find(address, 1, |other| other == *probe).value(), Some(*probe));
            }
            let known: Vec<u32> = model.values().flatten().copied().collect();
            let removed = (0..changes.len() as u32).filter(|probe| !known.contains(probe));
            prop_assert!(removed.into_iter().all(|probe| !space.has_probe(probe)));
        }
    }
}

#[test]
fn every_answer_says_how_it_was_found() {
    let words = storage(SHAPE);
    let space = Space::new(&words, SHAPE).expect("long enough");
    let writer = space.write(1).expect("no other writer");
    writer.insert(mapping(1..2, 1, 0)).expect("room");
    writer
        .add_probe(file_offset(1, 5), 7, |_| true)
        .expect("room");
    assert_eq!(
        space.find(PAGE + 5, 1, |_| true),
        Lookup::Speculative(7),
        "a hit needs no lock"
    );
    assert_eq!(
        space.find(PAGE + 6, 1, |_| true),
        Lookup::Unsure,
        "a miss needs the lock, which the writer holds"
    );
    assert!(space.write(9).is_none(), "the writer holds the lock");
    drop(writer);
    assert_eq!(space.find(PAGE + 6, 1, |_| true), Lookup::Locked(None));
    assert_eq!(space.find(2 * PAGE + 5, 1, |_| true), Lookup::Locked(None));
    assert_eq!(space.find(u64::MAX, 1, |_| true), Lookup::Locked(None));
    assert_eq!(
        space.find_locked(PAGE + 5, 1, |_| true),
        Lookup::Locked(Some(7))
    );
    assert_eq!(
        space.find(PAGE + 9, 5, |_| true),
        Lookup::Speculative(7),
        "within reach"
    );
    assert_eq!(space.find(PAGE + 9, 4, |_| true), Lookup::Locked(None));
    assert_eq!(space.find(PAGE + 5, 1, |_| false), Lookup::Locked(None));
}

/// Regression: copies from a mapping's middle (mremap with old length 0) left empty mappings.
#[test]
fn a_copy_out_of_the_middle_is_one_mapping() {
    let words = storage(SHAPE);
    let space = Space::new(&words, SHAPE).expect("long enough");
    let changes = [
        Change::Map(530..540, 1, 0),
        Change::Move(535..535, 314..327),
    ];
    changes
        .iter()
        .for_each(|change| apply(&space, change).expect("room"));
    assert_eq!(runs(&space), [(314, 327, 1, 5), (530, 540, 1, 0)]);
}

#[test]
fn a_refused_change_leaves_all_as_it_was() {
    let shape = Shape {
        tables: 1 + 2 * 4,
        probes: 2,
    };
    let words = storage(shape);
    assert!(Space::new(&words[1..], shape).is_none(), "one word too few");
    let space = Space::new(&words, shape).expect("long enough");
    let change = |change| apply(&space, &change);
    let far = 1 << 33;
    assert_eq!(change(Change::Map(7..9, 1, 0)), Ok(()));
    assert_eq!(change(Change::Map(far + 7..far + 9, 2, 0)), Ok(()));
    let before = runs(&space);
    assert_eq!(before.len(), 2);
    let full = Err(SpaceError::Full);
    assert_eq!(change(Change::Map(far / 2..far / 2 + 1, 3, 0)), full);
    assert_eq!(change(Change::Move(7..8, 905..906)), full);
    assert_eq!(runs(&space), before);
    assert_eq!(change(Change::Unmap(7..8)), Ok(()), "needs no room");
    assert_eq!(
        change(Change::Map(20..90, 1, 0)),
        Ok(()),
        "the table exists"
    );
    assert_eq!(change(Change::Unmap(0..far)), Ok(()), "four tables freed");
    assert_eq!(
        change(Change::Map(0..far / 2 - 1, 1, 0)),
        Ok(()),
        "few entries suffice"
    );
    assert_eq!(change(Change::Unmap(500..501)), full, "it needs a table");
    let writer = space.write(1).expect("no other writer");
    let odd = Mapping {
        end: 3 * PAGE - 1,
        ..mapping(1..3, 1, 0)
    };
    assert_eq!(writer.insert(odd), Err(SpaceError::OutOfRange));
    let high = mapping((1 << 35) - 1..(1 << 35) + 1, 1, 0);
    assert_eq!(writer.insert(high), Err(SpaceError::OutOfRange));
    assert_eq!(
        writer.remap(0..PAGE, PAGE..PAGE + 1),
        Err(SpaceError::OutOfRange)
    );
    assert!((0..9).any(
        |offset| writer.add_probe(file_offset(1, offset), 1, |_| true) == Err(SpaceError::Full)
    ));
}

#[test]
fn removed_mappings_take_no_room() {
    let count = if cfg!(miri) { 60 } else { 20_000 };
    let shape = Shape {
        tables: 16 + count as usize * 4 / 128 * 65 / 64,
        probes: 0,
    };
    let words = storage(shape);
    let space = Space::new(&words, shape).expect("long enough");
    let add = |at: u64| apply(&space, &Change::Map(4 * at..4 * at + 1, at, 0));
    let remove = |at: u64| apply(&space, &Change::Unmap(4 * at..4 * at + 1));
    // The factor is coprime to the count, so every number is visited.
    let scattered = move |turn: u64| turn * 7_919 % count;
    for _ in 0..3 {
        assert!((0..count).all(|turn| add(scattered(turn)).is_ok()));
        assert_eq!(runs(&space).len() as u64, count);
        assert!((0..count).all(|turn| remove(scattered(turn)).is_ok()));
    }
}

#[test]
fn lookups_race_with_changes() {
    let words = storage(SHAPE);
    let space = Space::new(&words, SHAPE).expect("long enough");
    let fixed = if cfg!(miri) { 5 } else { 200 };
    for at in 0..fixed {
        apply(&space, &Change::Map(100 * at..100 * at + 10, at, 0)).expect("room");
        let writer = space.write(1).expect("no other writer");
        writer
            .add_probe(file_offset(at, 5), at as u32, |_| true)
            .expect("room");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..if cfg!(miri) { 20 } else { 20_000 } {
                let at = turn * 7_919 % fixed * 100;
                let writer = loop {
                    if let Some(writer) = space.write(1_000) {
                        break writer;
                    }
                };
                writer
                    .insert(mapping(at + 20..at + 90, 1_000, 0))
                    .expect("room");
                writer.remove(pages(&(at + 40..at + 50))).expect("room");
                writer
                    .remap(pages(&(at + 20..at + 40)), pages(&(at + 40..at + 47)))
                    .expect("room");
                writer.remove(pages(&(at + 20..at + 90))).expect("room");
            }
            stop.store(true, Relaxed);
        });
        scope.spawn(|| {
            for at in (0..fixed).cycle().take_while(|_| !stop.load(Relaxed)) {
                match space.find(100 * at * PAGE + 5, 1, |_| true) {
                    Lookup::Speculative(probe) | Lookup::Locked(Some(probe)) => {
                        assert_eq!(u64::from(probe), at)
                    }
                    Lookup::Locked(None) => panic!("the mapping never changed"),
                    Lookup::Unsure => {}
                }
            }
        });
    });
}
