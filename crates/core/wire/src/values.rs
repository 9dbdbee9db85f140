//! Hits by an argument's value: a probe's table among a thread's counters.
//!
//! A value is searched in [`RUN`] entries from its hash on. If all of them are taken, the hit counts only in [`ALL`].
//! The table is for 256 values, but has twice as many entries, because in a fuller table some values would find no free
//! entry. A probe's code takes an entry by one instruction, so a signal handler finds each entry free or taken.

/// All hits.
pub const ALL: u32 = 0;
/// Hits whose value was 0.
pub const ZERO: u32 = 1;
/// The first entry: a value and its hits, 0 and 0 while free.
pub const ENTRIES: u32 = 2;
/// Bits of a hash.
pub const BITS: u8 = 9;
/// Entries that a search probes.
pub const RUN: u32 = 16;
/// Number of entries.
pub const ROOM: u32 = (1 << BITS) + RUN;
/// Words of the table.
pub const WIDTH: u32 = ENTRIES + 2 * ROOM;

/// Returns the values and their hits. `words` is hostile input.
pub fn decode(words: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    let entries = words.get(ENTRIES as usize..).unwrap_or_default();
    let pairs = entries.chunks_exact(2).map(|pair| match pair {
        [value, hits] => (*value, *hits),
        _ => (0, 0),
    });
    let zero = words.get(ZERO as usize).map(|hits| (0, *hits));
    let all = zero.into_iter().chain(pairs.take(ROOM as usize));
    all.filter(|(_, hits)| *hits != 0)
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn counts_are_read_and_nothing_after_them() {
        let mut words = std::vec![0; WIDTH as usize + 4];
        (words[0], words[1]) = (9, 2);
        (words[2], words[3]) = (7, 3);
        (words[10], words[11]) = (u64::MAX, 4);
        words[WIDTH as usize + 1] = 5;
        let found: Vec<(u64, u64)> = decode(&words).collect();
        assert_eq!(found, [(0, 2), (7, 3), (u64::MAX, 4)]);
        assert_eq!(decode(&words[..1]).count(), 0);
        assert_eq!(decode(&[]).count(), 0);
    }
}
