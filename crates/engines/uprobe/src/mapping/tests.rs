//! Checks rules 1 and 2 of the mapping module after every change.

extern crate std;
use std::vec::Vec;

use proptest::prelude::*;

use super::{
    END, Entry, FileOffset, LEVELS, Mapping, MappingTable, Mappings, PAGE, WIDTH, words_for,
};
use crate::primitive::{AtomicU64, Ordering::Relaxed};

fn cells(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn check(mappings: &Mappings, table: &MappingTable, level: u32, named: &mut Vec<u64>) {
    for word in table {
        if let Some(number) = Entry::load(word).table() {
            assert!(level > 0, "rule 2");
            assert!(!named.contains(&number), "rule 1");
            named.push(number);
            let below = mappings.pool.get(number).expect("rule 1");
            assert!(below.iter().any(|word| word.load(Relaxed) != 0), "rule 1");
            check(mappings, below, level - 1, named);
        }
    }
}

fn check_all(mappings: &Mappings, tables: usize) {
    let mut named = Vec::new();
    check(mappings, mappings.root, LEVELS - 1, &mut named);
    let free = mappings.free.load(Relaxed) as usize;
    assert_eq!(1 + named.len() + free, tables, "none is lost");
}

proptest! {
    /// The pool is small, so that a change that takes too many tables fails.
    #[test]
    fn rules_hold_after_every_change(
        tables in 20..400_usize,
        changes in prop::collection::vec((0..400_u64, 0..90_u64, 0..6_u8), 1..if cfg!(miri) { 30 } else { 300 })
    ) {
        let words = cells(words_for(tables));
        let mappings = Mappings::new(&words).expect("long enough");
        for (start, len, kind) in changes {
            let pages = |start, len| start * PAGE..(start + len) * PAGE;
            let (here, there) = (pages(start, len), pages(500 + start, len / 2 + 1));
            let file_offset = FileOffset::new(kind.into(), start * PAGE).expect("small");
            match kind {
                0 if mappings.has_room(&here, false) => mappings.fill(here, None),
                1 if mappings.can_move(&here, &there) => mappings.remap(here, there),
                2 if mappings.can_move(&there, &here) && len > 0 => mappings.remap(there, here),
                3.. if mappings.has_room(&here, true) => mappings.fill(here, Some(file_offset)),
                _ => {}
            }
            check_all(&mappings, tables);
        }
        mappings.fill(0..END, None);
        check_all(&mappings, tables);
        prop_assert_eq!(mappings.free.load(Relaxed) as usize, tables - 1);
    }
}

#[test]
fn tables_are_small_here() {
    assert_eq!(WIDTH, 4);
    let mapping = Mapping {
        start: PAGE,
        end: END,
        file_offset: FileOffset::new(1, PAGE).expect("small"),
    };
    assert!(mapping.can_be_held());
    let odd = Mapping {
        start: PAGE - 1,
        ..mapping
    };
    let high = Mapping {
        end: END + PAGE,
        ..mapping
    };
    let shifted = Mapping {
        file_offset: mapping.file_offset.plus(1),
        ..mapping
    };
    assert!(
        [odd, high, shifted]
            .iter()
            .all(|other| !other.can_be_held())
    );
}

#[test]
fn a_large_mapping_takes_tables_at_its_edges_alone() {
    let words = cells(words_for(1 + 2 * (LEVELS as usize - 1)));
    let mappings = Mappings::new(&words).expect("long enough");
    let (all, file_offset) = (PAGE..END - PAGE, FileOffset::new(1, PAGE).expect("small"));
    assert!(mappings.has_room(&all, true));
    mappings.fill(all, Some(file_offset));
    assert_eq!(mappings.free.load(Relaxed), 0);
    let at_an_edge = (WIDTH - 1) * (LEVELS as usize - 1) + 1;
    assert_eq!(mappings.pieces(0..END).count(), WIDTH - 2 + 2 * at_an_edge);
    assert_eq!(mappings.within(0..END).count(), 1);
    assert_eq!(
        mappings.find_speculative(END - PAGE - 1),
        Some(file_offset.plus(END - 2 * PAGE - 1))
    );
}
