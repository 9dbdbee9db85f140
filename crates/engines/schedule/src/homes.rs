//! Labels that have groups, and the way from one to the next above it.

use alloc::vec::Vec;

use crate::set::Set;
use crate::{Label, Tree};

/// The sets of labels on one PMU. Labels without groups are not on any way: from each of all labels it is one step to
/// the nearest that has some.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes {
    homes: Vec<Home>,
    /// By label: the home that is the label's own, or else that of the nearest label above it.
    nearest: Vec<Option<u32>>,
    /// The homes on the longest way, and the groups of the largest set: room for these is enough for any switch.
    longest: usize,
    largest: usize,
}

#[derive(Clone, Debug)]
struct Home {
    label: Label,
    up: Option<u32>,
    /// How many homes are above.
    depth: u32,
    set: Set,
}

/// The number of a home.
pub(crate) type At = Option<u32>;

impl Homes {
    pub(crate) fn is_empty(&self) -> bool {
        self.homes.is_empty()
    }

    /// The home of a label, or of the nearest above it that has one.
    pub(crate) fn nearest(&self, tree: &Tree, label: Label) -> At {
        match self.nearest.get(label.0 as usize) {
            Some(nearest) => *nearest,
            // Created since the last home was.
            None => {
                let mut path = tree.path(label);
                path.find_map(|label| self.nearest.get(label.0 as usize))
                    .copied()
                    .flatten()
            }
        }
    }

    /// The home of this very label.
    pub(crate) fn of(&self, label: Label) -> At {
        let at = self.nearest.get(label.0 as usize).copied().flatten()?;
        (self.homes[at as usize].label == label).then_some(at)
    }

    pub(crate) fn up(&self, at: u32) -> At {
        self.homes[at as usize].up
    }

    pub(crate) fn depth(&self, at: u32) -> u32 {
        self.homes[at as usize].depth
    }

    pub(crate) fn set(&self, at: u32) -> &Set {
        &self.homes[at as usize].set
    }

    pub(crate) fn set_mut(&mut self, at: u32) -> &mut Set {
        &mut self.homes[at as usize].set
    }

    /// From a home to the outermost, without the one at `end` and what is above that.
    pub(crate) fn way(&self, from: At, end: At) -> impl Iterator<Item = u32> + '_ {
        let end_at = move |at: &u32| Some(*at) != end;
        core::iter::successors(from, |at| self.up(*at)).take_while(end_at)
    }

    /// The innermost that is on both ways.
    pub(crate) fn common(&self, mut one: At, mut other: At) -> At {
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

    /// At least as many groups as are on any way.
    pub(crate) fn most_groups(&self) -> usize {
        self.longest * self.largest
    }

    /// A set has so many groups now.
    pub(crate) fn grew(&mut self, groups: usize) {
        self.largest = self.largest.max(groups);
    }

    /// The home of a label, made where there is none.
    pub(crate) fn make(&mut self, tree: &Tree, label: Label) -> u32 {
        if let Some(at) = self.of(label) {
            return at;
        }
        self.homes.push(Home {
            label,
            up: None,
            depth: 0,
            set: Set::default(),
        });
        self.connect(tree);
        self.homes.len() as u32 - 1
    }

    /// Takes out a home that has left; the numbers of others change.
    pub(crate) fn close(&mut self, tree: &Tree, label: Label) {
        self.homes.retain(|home| home.label != label);
        self.connect(tree);
    }

    /// Ways anew: a label's parent has the smaller number, and so has its way already.
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
    fn labels_without_groups_are_on_no_way() {
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
        assert_eq!(
            homes.way(Some(at_c), None).collect::<Vec<_>>(),
            [at_c, at_a]
        );
        let at_d = homes.make(&tree, d);
        assert_eq!(homes.common(Some(at_c), Some(at_d)), Some(at_a));
        assert_eq!(homes.common(Some(at_c), None), None);
        assert_eq!(homes.common(Some(at_a), Some(at_d)), Some(at_a));
        // One that came later is found by its parents.
        let later = tree.create(d).unwrap();
        assert_eq!(homes.nearest(&tree, later), Some(at_d));
        homes.close(&tree, d);
        assert_eq!(homes.nearest(&tree, later), homes.of(a));
    }
}
