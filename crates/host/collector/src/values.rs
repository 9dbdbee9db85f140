//! The values of an argument, and how often each was seen.

use std::collections::BTreeMap;

use tiptoe_wire::calls::words;
use tiptoe_wire::timed_values;
use tiptoe_wire::values::{WIDTH, decode};

use crate::call_sums::add_calls;

/// The most values to keep of one event, because a target may make up any number.
const MOST: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub struct Values(BTreeMap<u64, u64>);

impl Values {
    /// Ignores words after those of the probe.
    pub fn add(&mut self, words: &[u64]) {
        let own = words.get(..WIDTH as usize).unwrap_or(words);
        for (value, hits) in decode(own) {
            if self.0.len() < MOST || self.0.contains_key(&value) {
                let sum = self.0.entry(value).or_default();
                *sum = sum.wrapping_add(hits);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(value, hits)| (*value, *hits))
    }

    pub fn others(&self, all: u64) -> u64 {
        let known = self
            .0
            .values()
            .fold(0, |sum: u64, hits| sum.saturating_add(*hits));
        all.saturating_sub(known)
    }
}

const MOST_TIMED: usize = 1 << 12;

/// The calls of all threads by value; `None` is for values that found no room. The words are those of
/// [`tiptoe_wire::calls::words`].
#[derive(Clone, Debug, Default)]
pub struct TimedValues(BTreeMap<Option<u64>, Vec<u64>>);

impl TimedValues {
    pub fn add(&mut self, words: &[u64]) {
        let own = words.get(..timed_values::WIDTH as usize).unwrap_or(words);
        for (value, set) in timed_values::decode(own) {
            let known = self.0.len() < MOST_TIMED || self.0.contains_key(&value);
            let all = self.0.entry(value.filter(|_| known)).or_default();
            all.resize(words::ALL as usize, 0);
            add_calls(all, set);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (Option<u64>, &[u64])> {
        self.0.iter().map(|(value, words)| (*value, &words[..]))
    }

    pub fn all(&self) -> Vec<u64> {
        let mut all = vec![0; words::ALL as usize];
        self.0.values().for_each(|words| add_calls(&mut all, words));
        all
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

    fn timed(sets: &[(u64, u64, u64)]) -> Vec<u64> {
        let mut all = vec![0; timed_values::WIDTH as usize];
        for (number, (value, calls, longest)) in (timed_values::FIRST..).zip(sets) {
            let first = timed_values::set(0, number);
            all[(first + words::CALLS) as usize] = *calls;
            all[(first + words::LONGEST) as usize] = *longest;
            // The last call still counts at index 0.
            all[(first + words::PENDING) as usize] = *value;
            all[(first + words::DURATIONS) as usize] = 1;
            let key = u32::from(number - timed_values::FIRST) + timed_values::KEYS;
            all[key as usize] = *value;
        }
        all
    }

    #[test]
    fn calls_of_a_value_add_up_over_threads_and_the_longest_stays() {
        let mut values = TimedValues::default();
        values.add(&timed(&[(7, 1, 100), (9, 2, 5)]));
        values.add(&timed(&[(9, 40, 50), (0, 3, 9)]));
        let two = |words: &[u64]| [words::CALLS, words::LONGEST].map(|at| words[at as usize]);
        let durations = |words: &[u64]| {
            let of = |at: &u32| words[(words::DURATIONS + at) as usize];
            [0, 7, 9].each_ref().map(of)
        };
        let found: Vec<_> = values.iter().map(|(v, words)| (v, two(words))).collect();
        let expected = [(None, [3, 9]), (Some(7), [1, 100]), (Some(9), [42, 50])];
        assert_eq!(found, expected);
        let of_nine = values.iter().find(|(value, _)| *value == Some(9));
        assert_eq!(durations(of_nine.expect("timed").1), [0, 0, 2]);
        assert_eq!(two(&values.all()), [46, 100]);
        assert_eq!(durations(&values.all()), [1, 1, 2]);
        assert_eq!(TimedValues::default().all().len(), words::ALL as usize);
    }

    #[test]
    fn values_that_are_made_up_are_timed_together() {
        let mut values = TimedValues::default();
        for base in (1..1 << 14).step_by(64) {
            let made_up: Vec<_> = (base..base + 64).map(|value| (value, 1, 1)).collect();
            values.add(&timed(&made_up));
        }
        assert!(values.iter().count() <= MOST_TIMED + 1);
        assert_eq!(values.all()[words::CALLS as usize], 1 << 14);
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
