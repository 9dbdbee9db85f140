//! Which label lies in which.

use alloc::vec::Vec;

use crate::Label;

/// Cgroups, or scopes, by parent. A label is never given twice, so that a parent's number is below its children's.
#[derive(Clone, Debug)]
pub struct Tree {
    parents: Vec<Option<Label>>,
    /// How many children each has; `None` where it is gone.
    children: Vec<Option<u32>>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree {
            parents: alloc::vec![None],
            children: alloc::vec![Some(0)],
        }
    }
}

impl Tree {
    /// The root alone.
    pub fn new() -> Tree {
        Tree::default()
    }

    /// A new label; `None` where the parent is not there, or there are 4 billion.
    pub fn create(&mut self, parent: Label) -> Option<Label> {
        let label = Label(u32::try_from(self.parents.len()).ok()?);
        *self.children.get_mut(parent.0 as usize)?.as_mut()? += 1;
        self.parents.push(Some(parent));
        self.children.push(Some(0));
        Some(label)
    }

    /// Takes one out, if it is there, is not the root and has no children.
    pub fn delete(&mut self, label: Label) -> bool {
        let childless = self.children.get(label.0 as usize) == Some(&Some(0));
        let Some(parent) = self.parent(label).filter(|_| childless) else {
            return false;
        };
        self.children[label.0 as usize] = None;
        if let Some(Some(children)) = self.children.get_mut(parent.0 as usize) {
            *children -= 1;
        }
        true
    }

    /// Whether it is there.
    pub fn has(&self, label: Label) -> bool {
        matches!(self.children.get(label.0 as usize), Some(Some(_)))
    }

    /// In which it lies; of one that is gone, lay.
    pub fn parent(&self, label: Label) -> Option<Label> {
        self.parents.get(label.0 as usize).copied().flatten()
    }

    /// Itself, and all that it is in, to the root.
    pub fn path(&self, label: Label) -> impl Iterator<Item = Label> + '_ {
        core::iter::successors(Some(label), |label| self.parent(*label))
    }

    /// How many labels there ever were.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Never: the root is always there.
    pub fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leaves_go_and_numbers_are_not_given_twice() {
        let mut tree = Tree::new();
        let a = tree.create(Label::ROOT).unwrap();
        let b = tree.create(a).unwrap();
        assert_eq!(tree.path(b).collect::<Vec<_>>(), [b, a, Label::ROOT]);
        assert!(!tree.delete(a) && !tree.delete(Label::ROOT));
        assert!(tree.delete(b) && !tree.delete(b) && !tree.has(b));
        assert_eq!(tree.create(b), None);
        assert!(tree.delete(a));
        assert_eq!(tree.create(Label::ROOT), Some(Label(3)));
        assert_eq!(tree.len(), 4);
    }
}
