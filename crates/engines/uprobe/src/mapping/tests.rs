//! The numbered rules, checked after every change, with blocks so small that
//! rows come and go all the time.

extern crate std;
use std::vec::Vec;

use proptest::prelude::*;

use super::{BLOCK, JOIN, Mapping, Mappings, NONE, Place, Position, words_for};
use crate::primitive::{AtomicU64, Ordering::Relaxed};

fn cells(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn check(mappings: &Mappings) {
    let all: Vec<Mapping> = mappings.iter().collect();
    assert_eq!(all.len(), mappings.len());
    for pair in all.windows(2) {
        assert!(
            pair[0].start < pair[0].end && pair[0].end <= pair[1].start,
            "rule 1"
        );
        assert!(!pair[0].continues_in(&pair[1]), "rule 2");
    }
    let blocks = (0..mappings.index.len()).map(|row| mappings.block(row).expect("a block"));
    let counts: Vec<usize> = blocks
        .map(|block| {
            let count = block.count();
            let keys = block.keys().iter().map(|key| key.load(Relaxed));
            assert!(keys.clone().take(count).all(|key| key != NONE), "rule 3");
            assert!(keys.skip(count).all(|key| key == NONE), "rule 3");
            count
        })
        .collect();
    assert!(
        counts.windows(2).all(|pair| pair[0] + pair[1] > JOIN),
        "rule 4"
    );
    for row in 0..mappings.index.len() {
        let first = mappings.get(Position { row, slot: 0 }).expect("rule 3");
        assert_eq!(mappings.index.start(row), first.start, "a row's key");
        assert_eq!(mappings.index.search(first.start), Some(row), "its levels");
    }
}

proptest! {
    #[test]
    fn rules_hold_after_every_change(
        changes in prop::collection::vec((0..400_u64, 0..40_u64, 0..6_u8), 1..if cfg!(miri) { 30 } else { 300 })
    ) {
        let capacity = 420;
        let words = cells(words_for(capacity));
        let mappings = Mappings::new(&words, capacity).expect("long enough");
        for (start, len, kind) in changes {
            match kind {
                0 => mappings.remove(start..start + len),
                1 => mappings.remap(start..start + len, 500 + start..500 + start + len / 2 + 1),
                2 => mappings.remap(500 + start..500 + start + len, start..start + len),
                _ => mappings.insert(Mapping {
                    start,
                    end: start + len % 4 + 1,
                    place: Place::new(kind.into(), start).expect("small"),
                }),
            }
            check(&mappings);
        }
    }
}

#[test]
fn blocks_are_small_here() {
    assert_eq!(BLOCK, 4);
}
