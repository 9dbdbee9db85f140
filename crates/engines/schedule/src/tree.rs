//! The tree of labels (cgroups or scopes).

use alloc::vec::Vec;

use crate::Label;

/// A tree of labels. Numbers are never reused, so a parent has a smaller number than its children.
#[derive(Clone, Debug)]
pub struct Tree {
    parents: Vec<Option<Label>>,
    /// How many children each label has; `None` if deleted.
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
    /// Returns a tree with only the root.
    pub fn new() -> Tree {
        Tree::default()
    }

    /// Adds a label, if its parent exists and a number is left.
    pub fn create(&mut self, parent: Label) -> Option<Label> {
        let label = Label(u32::try_from(self.parents.len()).ok()?);
        *self.children.get_mut(parent.0 as usize)?.as_mut()? += 1;
        self.parents.push(Some(parent));
        self.children.push(Some(0));
        Some(label)
    }

    /// Deletes a label, unless it is the root or has children.
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

    /// Returns whether a label exists.
    pub fn has(&self, label: Label) -> bool {
        matches!(self.children.get(label.0 as usize), Some(Some(_)))
    }

    /// Returns a label's parent, even a deleted label's.
    pub fn parent(&self, label: Label) -> Option<Label> {
        self.parents.get(label.0 as usize).copied().flatten()
    }

    /// Returns the label and all above it.
    pub fn path(&self, label: Label) -> impl Iterator<Item = Label> + '_ {
        core::iter::successors(Some(label), |label| self.parent(*label))
    }

    /// Returns the number of labels ever added.
    pub fn len(&self) -> usize {
        self.parents.len()
    }

    /// Returns `false`, because the root always exists.
    pub fn is_empty(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leaves_are_deleted_and_numbers_are_not_reused() {
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
