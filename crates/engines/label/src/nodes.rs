//! Gives numbers to *nodes*, in a table that all threads share. A node is a scope within a parent node.
//!
//! The first thread that enters a node takes a number and writes the node's record (name and parent). Then it
//! publishes number and key (label and parent) in one word. So a thread that finds the number finds a complete
//! record.
//!
//! | edge | Release | Acquire |
//! |---|---|---|
//! | J: a node's record is complete | the exchange in [`Nodes::add`] | [`Nodes::number`] |

use tiptoe_wire::Words;
use tiptoe_wire::scopes::{BITS, COUNT, KEYS, OTHERS, RECORDS, RUN, key, record};

use crate::primitive::Ordering::{AcqRel, Acquire, Relaxed};

const HASH: u64 = tiptoe_wire::calls::HASH;

/// The table of nodes.
#[derive(Clone, Copy)]
pub struct Nodes<'a>(Words<'a>);

impl<'a> Nodes<'a> {
    /// Returns the table in `words`.
    pub fn new(words: Words<'a>) -> Self {
        Nodes(words)
    }

    /// Returns the number of `label`'s node within `parent`; [`OTHERS`] if the table is full, `parent` is [`OTHERS`],
    /// or `label` is no scope's address. Calls `name` only for a new node.
    #[inline(always)]
    pub fn number<'n>(&self, label: u64, parent: u32, name: impl FnOnce() -> &'n [u8]) -> u32 {
        let Some(key) = key::of(label, parent).filter(|_| parent != OTHERS) else {
            return OTHERS;
        };
        let first = KEYS + (key.wrapping_mul(HASH) >> (u64::BITS - BITS)) as u32;
        let word = self.0.at(first as usize);
        // Acquire: edge J.
        let word = word.map_or(0, |word| word.load(Acquire));
        match key::number(word, key) {
            Some(number) => number,
            None => self.number_of(first, key, parent, name),
        }
    }

    #[cold]
    #[inline(never)]
    fn number_of<'n>(
        &self,
        first: u32,
        key: u64,
        parent: u32,
        name: impl FnOnce() -> &'n [u8],
    ) -> u32 {
        for place in first..first + RUN {
            let word = self.0.at(place as usize);
            // Acquire: edge J.
            let word = word.map_or(0, |word| word.load(Acquire));
            match key::number(word, key) {
                Some(number) => return number,
                None if word == 0 => return self.add(place..first + RUN, key, parent, name()),
                None => {}
            }
        }
        OTHERS
    }

    fn add(&self, places: core::ops::Range<u32>, key: u64, parent: u32, name: &[u8]) -> u32 {
        let Some(count) = self.0.at(COUNT as usize) else {
            return OTHERS;
        };
        // Relaxed: the increment alone makes the number unique. The check before it prevents an overflow.
        if count.load(Relaxed) + 1 >= OTHERS.into() {
            return OTHERS;
        }
        let number = count.fetch_add(1, Relaxed) as u32 + 1;
        if number >= OTHERS {
            return OTHERS;
        }
        self.describe(number, parent, name);
        let word = key | u64::from(number) << key::NUMBER_SHIFT;
        for place in places {
            let Some(place) = self.0.at(place as usize) else {
                return OTHERS;
            };
            // AcqRel: edge J. Success publishes our record, failure acquires the faster thread's record.
            match place.compare_exchange(0, word, AcqRel, Acquire) {
                Ok(_) => return number,
                Err(taken) => {
                    if let Some(number) = key::number(taken, key) {
                        return number;
                    }
                }
            }
        }
        OTHERS
    }

    fn describe(&self, number: u32, parent: u32, name: &[u8]) {
        let first = RECORDS + number * record::WORDS;
        let put = |word: u32, value| self.0.store((first + word) as usize, value);
        for (index, chunk) in (0..record::WORDS - record::NAME).zip(name.chunks(8)) {
            let bytes = chunk.iter().rev();
            put(
                record::NAME + index,
                bytes.fold(0, |word, byte| word << 8 | u64::from(*byte)),
            );
        }
        let len = (name.len() as u64).min(0x7fff_ffff);
        put(
            record::PARENT,
            record::COMPLETE | len << 32 | u64::from(parent),
        );
    }
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;
    use tiptoe_wire::scopes::{NODES, WIDTH, node};

    fn table() -> Vec<AtomicU64> {
        (0..WIDTH).map(|_| AtomicU64::new(0)).collect()
    }

    fn plain(table: &[AtomicU64]) -> Vec<u64> {
        table.iter().map(|word| word.load(Relaxed)).collect()
    }

    #[test]
    fn a_label_within_another_is_a_node_of_its_own() {
        let table = table();
        let nodes = Nodes::new(Words::new(&table));
        let outer = nodes.number(0x1000, 0, || b"outer");
        let inner = nodes.number(0x2000, outer, || {
            b"a name longer than the seven words that there are for it"
        });
        let alone = nodes.number(0x2000, 0, || b"inner");
        assert_eq!((outer, inner, alone), (1, 2, 3));
        assert_eq!(nodes.number(0x2000, outer, || unreachable!()), inner);
        assert_eq!(nodes.number(0x2000, OTHERS, || unreachable!()), OTHERS);
        assert_eq!(nodes.number(0x2001, 0, || unreachable!()), OTHERS);
        let words = plain(&table);
        let found = node(&words, inner).expect("a record");
        assert_eq!((found.parent, found.is_cut), (outer, false));
        assert_eq!(found.name().len(), 56);
        assert_eq!(node(&words, alone).expect("a record").name(), b"inner");
    }

    #[test]
    fn nodes_without_room_are_counted_as_others() {
        let table = table();
        let nodes = Nodes::new(Words::new(&table));
        let many = if cfg!(miri) { 40 } else { 3 * NODES };
        let labels = (1..=u64::from(many)).map(|n| n * 64);
        let numbers: Vec<u32> = labels
            .map(|label| nodes.number(label, 0, || b"x"))
            .collect();
        let mut own: Vec<u32> = numbers.iter().copied().filter(|n| *n != OTHERS).collect();
        let count = own.len();
        own.dedup();
        assert_eq!(own.len(), count, "each label has its own number");
        assert!(count as u32 >= many.min(NODES / 2), "{count}");
        assert!(own.iter().all(|n| (1..OTHERS).contains(n)));
    }
}
