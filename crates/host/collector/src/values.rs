//! The values of an argument, and how often each came.

use std::collections::BTreeMap;

use tiptoe_wire::values::{WIDTH, decode};

/// More values than these of one event are not told apart, whatever a target writes.
const MOST: usize = 1 << 16;

/// What all threads together kept of one event.
#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<u64, u64>);

impl Values {
    /// Adds what one thread kept, in the words of its probe and any behind.
    pub fn add(&mut self, words: &[u64]) {
        let own = words.get(..WIDTH as usize).unwrap_or(words);
        for (value, hits) in decode(own) {
            if self.0.len() < MOST || self.0.contains_key(&value) {
                let sum = self.0.entry(value).or_default();
                *sum = sum.wrapping_add(hits);
            }
        }
    }

    /// Each value and its hits.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(value, hits)| (*value, *hits))
    }

    /// Of so many hits those whose value is not known.
    pub fn others(&self, all: u64) -> u64 {
        let known = self
            .0
            .values()
            .fold(0, |sum: u64, hits| sum.saturating_add(*hits));
        all.saturating_sub(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pairs: &[(u64, u64)]) -> Vec<u64> {
        let words = [0, 0].into_iter();
        words
            .chain(pairs.iter().flat_map(|(value, hits)| [*value, *hits]))
            .collect()
    }

    #[test]
    fn values_of_threads_add_up() {
        let mut values = Values::default();
        values.add(&words(&[(7, 1), (9, 2)]));
        values.add(&words(&[(9, 40)]));
        assert_eq!(values.iter().collect::<Vec<_>>(), [(7, 1), (9, 42)]);
        assert_eq!((values.others(50), values.others(3)), (7, 0));
    }

    #[test]
    fn a_target_that_makes_values_up_is_bounded() {
        let mut values = Values::default();
        for base in (0..1 << 18).step_by(256) {
            let made_up: Vec<(u64, u64)> = (base..base + 256).map(|value| (value, 1)).collect();
            values.add(&words(&made_up));
        }
        assert_eq!(values.iter().count(), MOST);
        values.add(&vec![u64::MAX; 10_000]);
        assert_eq!(values.iter().count(), MOST);
    }
}
