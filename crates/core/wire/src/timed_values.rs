//! Timed calls by an argument's value, in a thread's words (its *slab*) from the probe's slot (first word) on.
//!
//! A *set* of [`words::ALL`] words counts the calls with one value. The sets are [`OTHERS`], [`ZERO`], and [`ROOM`]
//! keyed sets. Each keyed set has a key from [`KEYS`] on: its value, or 0 if free. The search for a value begins at the
//! value's hash. Only the thread writes its keys, each by one instruction, so a signal handler finds a set free or
//! taken.

use crate::calls::{HASH, words};
use crate::data::Data;

/// The set of calls whose value found no room.
pub const OTHERS: u8 = 0;
/// The set of calls whose value was 0.
pub const ZERO: u8 = 1;
/// The first key's set.
pub const FIRST: u8 = 2;
/// Bits of a hash.
pub const BITS: u8 = 6;
/// Number of keys.
pub const ROOM: u8 = (1 << BITS) + 16;
/// Number of sets.
pub const SETS: u8 = ROOM + FIRST;
/// The first key.
pub const KEYS: u32 = SETS as u32 * words::ALL;
/// Words of all sets and keys.
pub const WIDTH: u32 = KEYS + ROOM as u32;

/// Returns a set's first word.
pub const fn set(slot: u32, number: u8) -> u32 {
    slot.saturating_add(number as u32 * words::ALL)
}

fn key(slot: u32, number: u8) -> Option<u32> {
    let index = number.checked_sub(FIRST).filter(|index| *index < ROOM)?;
    Some(slot.saturating_add(KEYS + u32::from(index)))
}

/// Returns the sets with counts, and their values (`None` for [`OTHERS`]). `all` is hostile input.
pub fn decode(all: &[u64]) -> impl Iterator<Item = (Option<u64>, &[u64])> {
    let sets = all.chunks_exact(words::ALL as usize);
    let value = |number: u8| match number {
        OTHERS => None,
        ZERO => Some(0),
        _ => all
            .get(key(0, number)? as usize)
            .copied()
            .filter(|v| *v != 0),
    };
    let sets = (0..SETS).zip(sets);
    let counted = sets.filter(|(_, set)| set.iter().any(|word| *word != 0));
    counted.map(move |(number, set)| (value(number), set))
}

/// Returns the set in slab `to` for the value of a set in slab `from`.
pub fn same_value(data: &Data, slot: u32, [from, to]: [u32; 2], number: u8) -> u8 {
    let Some(known) = key(slot, number) else {
        return number;
    };
    let value = data.counter(from, known);
    if value == 0 || to == 0 {
        return OTHERS;
    }
    let first = (value.wrapping_mul(HASH) >> (64 - BITS)) as u8 + FIRST;
    let has = |number: &u8| key(slot, *number).is_some_and(|key| data.take(to, key, value));
    (first..SETS).find(has).unwrap_or(OTHERS)
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    use crate::geometry::Geometry;
    use crate::words::Words;
    extern crate std;
    use core::sync::atomic::AtomicU64;
    use std::vec::Vec;

    #[test]
    fn sets_are_read_with_their_values() {
        let mut all = std::vec![0; WIDTH as usize + 9];
        let first = |number: u8| set(0, number) as usize;
        let free = FIRST + 2;
        for number in [OTHERS, ZERO, FIRST, SETS - 1, free] {
            all[first(number)] = u64::from(number) + 100;
        }
        all[KEYS as usize] = 7;
        all[WIDTH as usize - 1] = u64::MAX;
        all[WIDTH as usize] = 5;
        let found: Vec<(Option<u64>, u64)> = decode(&all).map(|(v, set)| (v, set[0])).collect();
        let last = u64::from(SETS) + 99;
        assert_eq!(
            found,
            [
                (None, 100),
                (Some(0), 101),
                (Some(7), 102),
                (None, 104),
                (Some(u64::MAX), last)
            ]
        );
        assert_eq!(decode(&all[..3]).count(), 0);
        assert_eq!(decode(&all[..first(1)]).count(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes: a whole segment, word by word")]
    fn a_value_finds_its_set_among_another_threads() {
        let geometry = Geometry {
            slots: 16 + WIDTH,
            slabs: 3,
            rings: false,
            hits: false,
        };
        let words: Vec<AtomicU64> = (0..geometry.data_bytes() / 8)
            .map(|_| AtomicU64::new(0))
            .collect();
        let data = Data::new(Words::new(&words), geometry).expect("room");
        let slot = 16;
        let moved = |slabs: [u32; 2], number| same_value(&data, slot, slabs, number);
        assert_eq!(moved([1, 2], OTHERS), OTHERS);
        assert_eq!(moved([1, 2], ZERO), ZERO);
        assert_eq!(moved([1, 2], FIRST), OTHERS, "the set has no key");
        assert_eq!(moved([1, 2], u8::MAX), u8::MAX, "there is no such set");
        for value in 1..=u64::from(ROOM) {
            let key = KEYS + value as u32 - 1;
            data.add_many(1, slot + key, value);
        }
        let mut taken = Vec::new();
        for number in FIRST..SETS {
            let own = moved([1, 2], number);
            assert_eq!(moved([1, 2], number), own, "the same set again");
            if own == OTHERS {
                continue;
            }
            let value = data.counter(2, slot + KEYS + u32::from(own - FIRST));
            assert_eq!(value, u64::from(number - FIRST) + 1);
            assert!(!taken.contains(&own));
            taken.push(own);
        }
        assert!(taken.len() > 1 << BITS, "{}", taken.len());
        assert_eq!(moved([1, 0], FIRST), OTHERS, "threads that share a slab");
    }
}
