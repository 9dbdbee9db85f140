//! Reads the names of a program's scopes (parts of its run that it names), and the time spent in scopes, from slabs;
//! each slab has one thread's counters. The target can write to slabs, so names must be escaped, and no number may be
//! relied on.

use std::collections::BTreeMap;

use tiptoe_wire::scopes::{NODES, NodeTotals, OTHERS, RESUMED, node, spent};

use crate::counts::plain;

pub const OUTSIDE: &str = "(no scope)";
pub const NO_ROOM: &str = "(other scopes)";

#[derive(Debug, Default)]
pub struct Tree(BTreeMap<u32, String>);

impl Tree {
    pub fn read(words: &[u64]) -> Tree {
        let mut names: BTreeMap<u32, String> = BTreeMap::new();
        for number in 1..NODES {
            let Some(node) = node(words, number) else {
                continue;
            };
            let own = plain(node.name());
            let own = if node.is_cut { own + "…" } else { own };
            let path = match node.parent {
                0 => own,
                // A parent has a smaller number, so it was read before.
                parent => match names.get(&parent) {
                    Some(outer) => format!("{outer}/{own}"),
                    None => continue,
                },
            };
            names.insert(number, path);
        }
        Tree(names)
    }

    /// Returns the path of a node (a scope inside its parents): `checkout/payment`.
    pub fn name(&self, number: u64) -> String {
        let named = u32::try_from(number).ok();
        let named = named.and_then(|number| self.0.get(&number));
        match number {
            0 => OUTSIDE.to_owned(),
            _ => named.cloned().unwrap_or_else(|| NO_ROOM.to_owned()),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct ScopeTimes {
    nodes: BTreeMap<u32, NodeTotals>,
    /// How often threads resumed a scope, which is no new entry.
    resumed: u64,
}

impl ScopeTimes {
    /// `is_in` is the thread's present node, and the ticks spent there that the words do not contain yet.
    pub fn add(&mut self, words: &[u64], is_in: Option<(u64, u64)>) {
        let resumed = words.get(RESUMED as usize).copied().unwrap_or(0);
        self.resumed = self.resumed.saturating_add(resumed);
        for (number, NodeTotals { entries, ticks }) in spent(words) {
            let sum = self.nodes.entry(number).or_default();
            sum.entries = sum.entries.saturating_add(entries);
            sum.ticks = sum.ticks.saturating_add(ticks);
        }
        if let Some((number, ticks)) = is_in {
            let number = u32::try_from(number).map_or(OTHERS, |number| number.min(OTHERS));
            let sum = self.nodes.entry(number).or_default();
            sum.ticks = sum.ticks.saturating_add(ticks);
        }
    }

    pub fn visits(&self) -> u64 {
        let entries = self.nodes.values().map(|scope| scope.entries);
        entries.fold(self.resumed, u64::saturating_add)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, NodeTotals)> {
        self.nodes.iter().map(|(number, sum)| (*number, *sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiptoe_wire::scopes::{NODE_WORDS, NODES_AT, RECORDS, WIDTH, record};

    fn described(nodes: &[(u32, u32, &[u8; 8])]) -> Vec<u64> {
        let mut words = vec![0; WIDTH as usize];
        for (number, parent, name) in nodes {
            let at = (RECORDS + number * record::WORDS) as usize;
            words[at] = record::COMPLETE | 8 << 32 | u64::from(*parent);
            words[at + 1] = u64::from_le_bytes(**name);
        }
        words
    }

    #[test]
    fn names_are_paths() {
        let words = described(&[
            (1, 0, b"checkout"),
            (2, 1, b"pay\nment"),
            (3, OTHERS, b"nowheres"),
            (5, 4, b"orphaned"),
        ]);
        let tree = Tree::read(&words);
        let name = |number| tree.name(number);
        assert_eq!([name(0), name(1)], [OUTSIDE, "checkout"]);
        assert_eq!(name(2), "checkout/pay\nment");
        for number in [3, 4, 5, u64::from(OTHERS), u64::MAX] {
            assert_eq!(name(number), NO_ROOM);
        }
    }

    #[test]
    fn the_times_of_threads_add_up() {
        let mut words = vec![0; WIDTH as usize];
        let at = (NODES_AT + 2 * NODE_WORDS) as usize;
        (words[at], words[at + 1]) = (3, 100);
        words[RESUMED as usize] = 7;
        let mut sums = ScopeTimes::default();
        sums.add(&words, None);
        sums.add(&words, Some((2, 50)));
        sums.add(&[], Some((u64::MAX, 1)));
        let (two, others) = (
            NodeTotals {
                entries: 6,
                ticks: 250,
            },
            NodeTotals {
                entries: 0,
                ticks: 1,
            },
        );
        assert_eq!(
            sums.iter().collect::<Vec<_>>(),
            [(2, two), (OTHERS, others)]
        );
        assert_eq!(sums.visits(), 6 + 14);
    }
}
