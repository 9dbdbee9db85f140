//! The layout of data about *scopes* (pieces of work that threads enter) in the *slabs* (threads' counters), from the
//! session's first scope counter on. Slab 0 is shared.
//!
//! Nested scopes are *nodes* of a tree. A node has a label (the scope's name) and a parent, the node in which the
//! thread entered the scope. Nodes are numbered in the order of their first entry; 0 is outside of all scopes. A
//! thread's current node is in [`crate::Geometry::SCOPE`].
//!
//! Only a thread and its signal handlers write its words. A node's record must be complete before the node's number is
//! published, and never changes.

/// Bits of a hash.
pub const BITS: u32 = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 1,
    (_, true) => 7,
    _ => 11,
};
/// Number of nodes: 0 is outside, the last is [`OTHERS`].
pub const NODES: u32 = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 4,
    (_, true) => 64,
    _ => 1024,
};
/// The node for scopes that find no room.
pub const OTHERS: u32 = NODES - 1;
/// Places in [`KEYS`] that a search probes.
pub const RUN: u32 = if cfg!(tiptoe_loom) { 2 } else { 16 };

/// A thread's word: the time up to which ticks (of the time stamp counter) are added to nodes; 0 before the first node.
pub const SINCE: u32 = 0;
/// A thread's word: how often the thread resumed a node.
pub const RESUMED: u32 = 1;
/// A thread's words: each node's [`NodeTotals`].
pub const NODES_AT: u32 = 8;
/// Words of a node.
pub const NODE_WORDS: u32 = 2;

/// In slab 0: the session's number.
pub const STAMP: u32 = 0;
/// In slab 0: how many node numbers are taken.
pub const COUNT: u32 = 1;
/// In slab 0: the table of [`key`]s.
pub const KEYS: u32 = 8;
/// In slab 0: each node's [`record`].
pub const RECORDS: u32 = (KEYS + (1 << BITS) + RUN).next_multiple_of(8);
/// Words of a slab's scope data.
pub const WIDTH: u32 = max(
    NODES_AT + NODES * NODE_WORDS,
    RECORDS + NODES * record::WORDS,
)
.next_multiple_of(8);

const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

/// A node's record.
pub mod record {
    /// Words of a record.
    pub const WORDS: u32 = if cfg!(tiptoe_loom) { 2 } else { 8 };
    /// The parent; in the high half the name's length. Written last.
    pub const PARENT: u32 = 0;
    /// Set in [`PARENT`] once the record is complete.
    pub const COMPLETE: u64 = 1 << 63;
    /// The name, cut to [`NAME_BYTES`].
    pub const NAME: u32 = 1;
    /// The most bytes of a name.
    pub const NAME_BYTES: usize = (WORDS - NAME) as usize * 8;
}

/// A node's key: its label's address and its parent's number. In the table the node's number is above the key.
pub mod key {
    /// Bits of a label's address, which is a multiple of eight below 2^47.
    pub const LABEL_BITS: u32 = 44;
    /// Bits of a node's number.
    pub const NODE_BITS: u32 = 10;
    /// Position of the node's number.
    pub const NUMBER_SHIFT: u32 = LABEL_BITS + NODE_BITS;

    const _: () = assert!(NUMBER_SHIFT + NODE_BITS == u64::BITS);
    const _: () = assert!(super::NODES <= 1 << NODE_BITS);

    /// Returns a label's key within a parent; `None` for an impossible address.
    pub fn of(label: u64, parent: u32) -> Option<u64> {
        let sound = label != 0 && label.is_multiple_of(8) && label >> (LABEL_BITS + 3) == 0;
        sound.then_some(label >> 3 | u64::from(parent & ((1 << NODE_BITS) - 1)) << LABEL_BITS)
    }

    /// Returns the node's number, if the word has this key.
    pub fn number(word: u64, key: u64) -> Option<u32> {
        let own = word & ((1 << NUMBER_SHIFT) - 1);
        (word != 0 && own == key).then_some((word >> NUMBER_SHIFT) as u32)
    }
}

/// A thread's totals of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTotals {
    /// How often the node was entered.
    pub entries: u64,
    /// Ticks in the node, without those in nodes below.
    pub ticks: u64,
}

/// Returns a thread's totals by node; hostile input.
pub fn spent(words: &[u64]) -> impl Iterator<Item = (u32, NodeTotals)> {
    let nodes = words.get(NODES_AT as usize..).unwrap_or_default();
    let nodes = nodes.chunks_exact(NODE_WORDS as usize).take(NODES as usize);
    let spent = |pair: &[u64]| NodeTotals {
        entries: pair.first().copied().unwrap_or(0),
        ticks: pair.get(1).copied().unwrap_or(0),
    };
    (0..)
        .zip(nodes.map(spent))
        .filter(|(_, spent)| *spent != NodeTotals::default())
}

/// A node in slab 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The parent: a smaller number, or [`OTHERS`].
    pub parent: u32,
    /// The name, cut to [`record::NAME_BYTES`], and its length.
    pub name: ([u8; record::NAME_BYTES], usize),
    /// Whether the name was cut.
    pub is_cut: bool,
}

impl Node {
    /// Returns the name's bytes.
    pub fn name(&self) -> &[u8] {
        let (bytes, len) = &self.name;
        bytes.get(..*len).unwrap_or(bytes)
    }
}

/// Returns a node from slab 0's hostile words; `None` if the parent has a larger number, because a walk to the root
/// might then never end.
pub fn node(words: &[u64], number: u32) -> Option<Node> {
    let first = (RECORDS + number.min(NODES) * record::WORDS) as usize;
    let own = words.get(first..first + record::WORDS as usize)?;
    let (head, name) = own.split_first()?;
    if number == 0 || number >= OTHERS || head & record::COMPLETE == 0 {
        return None;
    }
    let parent = *head as u32;
    let len = (head >> 32) as usize & 0x7fff_ffff;
    let mut bytes = [0; record::NAME_BYTES];
    for (to, word) in bytes.chunks_exact_mut(8).zip(name) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    (parent < number || parent == OTHERS).then_some(Node {
        parent,
        name: (bytes, len.min(record::NAME_BYTES)),
        is_cut: len > record::NAME_BYTES,
    })
}

#[cfg(all(test, not(tiptoe_loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    #[test]
    fn a_key_separates_label_and_parent() {
        let label = 0x7fff_ffff_fff8;
        let one = key::of(label, 1023).expect("a label");
        let word = one | 5 << key::NUMBER_SHIFT;
        assert_eq!(key::number(word, one), Some(5));
        assert_eq!(key::number(word, key::of(label, 1).unwrap()), None);
        assert_eq!(key::number(word, key::of(0x1000, 1023).unwrap()), None);
        assert_eq!(key::number(0, one), None);
        for odd in [0, 4, 1 << 47] {
            assert_eq!(key::of(odd, 0), None);
        }
    }

    #[test]
    fn what_a_thread_spent_is_read() {
        let mut words = std::vec![0; WIDTH as usize];
        let at = |node: u32| (NODES_AT + node * NODE_WORDS) as usize;
        words[at(0) + 1] = 7;
        words[at(OTHERS)] = 1;
        words[at(NODES)] = 9;
        let found: Vec<(u32, u64, u64)> = spent(&words)
            .map(|(n, spent)| (n, spent.entries, spent.ticks))
            .collect();
        assert_eq!(found, [(0, 0, 7), (OTHERS, 1, 0)]);
        assert_eq!(spent(&words[..4]).count(), 0);
    }

    #[test]
    fn an_impossible_node_is_refused() {
        let mut words = std::vec![0; WIDTH as usize];
        let at = |node: u32| (RECORDS + node * record::WORDS) as usize;
        words[at(2)] = record::COMPLETE | 3 << 32 | 1;
        words[at(2) + 1] = u64::from_le_bytes(*b"webzzzzz");
        let node_of = |words: &[u64], number| node(words, number);
        let found = node_of(&words, 2).expect("complete");
        assert_eq!(
            (found.parent, found.name(), found.is_cut),
            (1, &b"web"[..], false)
        );
        words[at(3)] = record::COMPLETE | 1000 << 32 | 2;
        let long = node_of(&words, 3).expect("complete");
        assert_eq!((long.name().len(), long.is_cut), (record::NAME_BYTES, true));
        words[at(4)] = record::COMPLETE | 4;
        words[at(5)] = 1;
        for number in [0, 1, 4, 5, OTHERS, NODES, u32::MAX] {
            assert_eq!(node_of(&words, number), None, "{number}");
        }
        assert_eq!(node_of(&words[..at(2)], 2), None);
    }
}
