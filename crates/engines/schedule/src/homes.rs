//! *Homes*: the labels (cgroups or scopes) that have groups of events, each linked to the nearest home above it.

use alloc::vec::Vec;

use crate::set::GroupSet;
use crate::{Label, Tree};

/// `nearest` also has entries for labels without groups, so that a switch between labels need not search upwards.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    homes: Vec<Home>,
    nearest: Vec<Option<u32>>,
    /// The most homes on a path to the root. A switch sorts at most `longest * largest` groups.
    longest: usize,
    /// The most groups of a home.
    largest: usize,
}

#[derive(Clone, Debug)]
struct Home {
    label: Label,
    up: Option<u32>,
    depth: u32,
    set: GroupSet,
}

/// A home's index; `None` without a home.
pub(crate) type HomeIndex = Option<u32>;

impl Homes {
    pub(crate) fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// Returns a label's home; if the label has none, the nearest home above it.
    pub(crate) fn nearest(&self, tree: &Tree, label: Label) -> HomeIndex {
        match self.nearest.get(label.0 as usize) {
            Some(nearest) => *nearest,
            // The label was created after the last call of `connect`.
            None => {
                let mut path = tree.path(label);
                path.find_map(|label| self.nearest.get(label.0 as usize))
                    .copied()
                    .flatten()
            }
        }
    }

    pub(crate) fn of(&self, label: Label) -> HomeIndex {
        let at = self.nearest.get(label.0 as usize).copied().flatten()?;
        (self.homes[at as usize].label == label).then_some(at)
    }

    pub(crate) fn up(&self, at: u32) -> HomeIndex {
        self.homes[at as usize].up
    }

    pub(crate) fn depth(&self, at: u32) -> u32 {
        self.homes[at as usize].depth
    }

    pub(crate) fn set(&self, at: u32) -> &GroupSet {
        &self.homes[at as usize].set
    }

    pub(crate) fn set_mut(&mut self, at: u32) -> &mut GroupSet {
        &mut self.homes[at as usize].set
    }

    /// Returns the homes from `from` outwards.
    pub(crate) fn way(&self, from: HomeIndex) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(from, |at| self.up(*at))
    }

    /// Returns the innermost home that contains both homes.
    pub(crate) fn common(&self, mut one: HomeIndex, mut other: HomeIndex) -> HomeIndex {
        while one != other {
            let (a, b) = (one?, other?);
            let (a_depth, b_depth) = (self.depth(a), self.depth(b));
            if a_depth >= b_depth {
                one = self.up(a);
            }
            if b_depth >= a_depth {
                other = self.up(b);
            }
        }
        one
    }

    pub(crate) fn most_groups(&self) -> usize {
        self.longest * self.largest
    }

    pub(crate) fn grew(&mut self, groups: usize) {
        self.largest = self.largest.max(groups);
    }

    pub(crate) fn make(&mut self, tree: &Tree, label: Label) -> u32 {
        if let Some(at) = self.of(label) {
            return at;
        }
        self.homes.push(Home {
            label,
            up: None,
            depth: 0,
            set: GroupSet::default(),
        });
        self.connect(tree);
        self.homes.len() as u32 - 1
    }

    /// Removes a label's home, whose groups must not be counting. The indices of later homes change.
    pub(crate) fn close(&mut self, tree: &Tree, label: Label) {
        self.homes.retain(|home| home.label != label);
        self.connect(tree);
    }

    /// A label's number is smaller than those of the labels below, so its entry is made first.
    fn connect(&mut self, tree: &Tree) {
        self.nearest.clear();
        self.nearest.resize(tree.len(), None);
        for (at, home) in self.homes.iter().enumerate() {
            self.nearest[home.label.0 as usize] = Some(at as u32);
        }
        for label in 0..tree.len() {
            let parent = tree.parent(Label(label as u32));
            let up = parent.and_then(|parent| self.nearest[parent.0 as usize]);
            let depth = up.map_or(0, |up| self.homes[up as usize].depth + 1);
            match self.nearest[label] {
                Some(own) => {
                    let home = &mut self.homes[own as usize];
                    (home.up, home.depth) = (up, depth);
                    self.longest = self.longest.max(depth as usize + 1);
                }
                None => self.nearest[label] = up,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_without_groups_are_on_no_path() {
        let mut tree = Tree::new();
        let mut below = |label| tree.create(label).unwrap();
        let a = below(Label::ROOT);
        let b = below(a);
        let c = below(b);
        let d = below(a);
        let mut homes = Homes::default();
        assert_eq!(homes.nearest(&tree, c), None);
        let at_c = homes.make(&tree, c);
        let at_a = homes.make(&tree, a);
        assert_eq!(homes.nearest(&tree, b), Some(at_a));
        assert_eq!(homes.way(Some(at_c)).collect::<Vec<_>>(), [at_c, at_a]);
        let at_d = homes.make(&tree, d);
        assert_eq!(homes.common(Some(at_c), Some(at_d)), Some(at_a));
        assert_eq!(homes.common(Some(at_c), None), None);
        assert_eq!(homes.common(Some(at_a), Some(at_d)), Some(at_a));
        let later = tree.create(d).unwrap();
        assert_eq!(homes.nearest(&tree, later), Some(at_d));
        homes.close(&tree, d);
        assert_eq!(homes.nearest(&tree, later), homes.of(a));
    }
}
