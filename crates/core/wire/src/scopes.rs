//! What is noted of scopes: words of the slabs, from the session's scope slot on.
//!
//! A scope within another is a *node* of a tree, as a cgroup within another is: its label, below the node
//! that its thread was in. Nodes are numbered as they are met; number 0 is outside of all.
//!
//! | in a thread's slab | words |
//! |---|---|
//! | [`Geometry::SCOPE`](crate::Geometry::SCOPE) | the node that the thread is in |
//! | [`SINCE`] | since when its time is not charged yet, in ticks; 0 before its first node |
//! | [`RESUMED`] | how often it came back to one without entering it |
//! | from [`NODES_AT`] on | of each node how often it was entered, and the ticks in it alone |
//!
//! | in slab 0 | words |
//! |---|---|
//! | [`STAMP`] | which session it is; never 0 |
//! | [`COUNT`] | how many numbers were given away |
//! | from [`KEYS`] on | the table of nodes, by label and parent: key and number in one word |
//! | from [`RECORDS`] on | [`record`] of each |
//!
//! A thread's words have no other writer, but for its signal handlers. A record is written by whoever
//! took the number, before the number is told; nothing is changed after it.

/// As many hashes as this power of two.
pub const BITS: u32 = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 1,
    (_, true) => 7,
    _ => 11,
};
/// Numbers of nodes: 0 is outside, the last one is [`OTHERS`].
pub const NODES: u32 = match (cfg!(tiptoe_loom), cfg!(miri)) {
    (true, _) => 4,
    (_, true) => 64,
    _ => 1024,
};
/// The node of what found no room.
pub const OTHERS: u32 = NODES - 1;
/// A key is in one of so many places, from its hash on.
pub const RUN: u32 = if cfg!(tiptoe_loom) { 2 } else { 16 };

/// Of a thread: since when its time is not charged.
pub const SINCE: u32 = 0;
/// Of a thread: how often it came back to a node without entering it.
pub const RESUMED: u32 = 1;
/// Of a thread: its first node's words.
pub const NODES_AT: u32 = 8;
/// Words of a node.
pub const NODE_WORDS: u32 = 2;

/// In slab 0: which session it is.
pub const STAMP: u32 = 0;
/// In slab 0: numbers given away, the first being 1.
pub const COUNT: u32 = 1;
/// In slab 0: the first key.
pub const KEYS: u32 = 8;
/// In slab 0: the first record.
pub const RECORDS: u32 = (KEYS + (1 << BITS) + RUN).next_multiple_of(8);
/// How many words there are in all.
pub const WIDTH: u32 = max(
    NODES_AT + NODES * NODE_WORDS,
    RECORDS + NODES * record::WORDS,
)
.next_multiple_of(8);

const fn max(a: u32, b: u32) -> u32 {
    if a > b { a } else { b }
}

/// What is known of a node.
pub mod record {
    /// Words of one.
    pub const WORDS: u32 = if cfg!(tiptoe_loom) { 2 } else { 8 };
    /// Its parent in the low half; above it how long its name is. Written last: 0 while the record is not
    /// complete.
    pub const PARENT: u32 = 0;
    /// Set in that word.
    pub const COMPLETE: u64 = 1 << 63;
    /// As much of the name as there is room for.
    pub const NAME: u32 = 1;
    /// Bytes of it.
    pub const NAME_BYTES: usize = (WORDS - NAME) as usize * 8;
}

/// A key is a label's address and the number of a parent; a number goes above it.
pub mod key {
    /// Labels are at multiples of eight, below 2^47.
    pub const LABEL_BITS: u32 = 44;
    /// Of a parent's number, and of the node's own.
    pub const NODE_BITS: u32 = 10;
    /// From this bit on the node's number.
    pub const NUMBER_SHIFT: u32 = LABEL_BITS + NODE_BITS;

    const _: () = assert!(NUMBER_SHIFT + NODE_BITS == u64::BITS);
    const _: () = assert!(super::NODES <= 1 << NODE_BITS);

    /// The key of a label below a parent; `None` for what is no address of a label.
    pub fn of(label: u64, parent: u32) -> Option<u64> {
        let sound = label != 0 && label.is_multiple_of(8) && label >> (LABEL_BITS + 3) == 0;
        sound.then_some(label >> 3 | u64::from(parent & ((1 << NODE_BITS) - 1)) << LABEL_BITS)
    }

    /// The number in a word, if its key is this one.
    pub fn number(word: u64, key: u64) -> Option<u32> {
        let own = word & ((1 << NUMBER_SHIFT) - 1);
        (word != 0 && own == key).then_some((word >> NUMBER_SHIFT) as u32)
    }
}

/// What one node came to in a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// How often it was entered.
    pub entries: u64,
    /// Ticks in it, but not in nodes below.
    pub ticks: u64,
}

/// What a thread's words say of each node; nothing of it is relied on.
pub fn spent(words: &[u64]) -> impl Iterator<Item = (u32, Spent)> {
    let nodes = words.get(NODES_AT as usize..).unwrap_or_default();
    let nodes = nodes.chunks_exact(NODE_WORDS as usize).take(NODES as usize);
    let spent = |pair: &[u64]| Spent {
        entries: pair.first().copied().unwrap_or(0),
        ticks: pair.get(1).copied().unwrap_or(0),
    };
    (0..)
        .zip(nodes.map(spent))
        .filter(|(_, spent)| *spent != Spent::default())
}

/// A node as slab 0 tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The one that it is within; less than its own number.
    pub parent: u32,
    /// As much of its name as there is.
    pub name: ([u8; record::NAME_BYTES], usize),
    /// Whether there was more.
    pub is_cut: bool,
}

impl Node {
    /// The name's bytes.
    pub fn name(&self) -> &[u8] {
        let (bytes, len) = &self.name;
        bytes.get(..*len).unwrap_or(bytes)
    }
}

/// The node of a number, in the words of slab 0: what the target claims, checked as far as
/// somebody may go by it.
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
    fn a_key_keeps_label_and_parent_apart() {
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
    fn a_node_is_believed_only_as_far_as_it_goes() {
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
        words[at(4)] = record::COMPLETE | 4; // its own parent
        words[at(5)] = 1; // not complete
        for number in [0, 1, 4, 5, OTHERS, NODES, u32::MAX] {
            assert_eq!(node_of(&words, number), None, "{number}");
        }
        assert_eq!(node_of(&words[..at(2)], 2), None);
    }
}
