//! The cgroups, past and present.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tiptoe_sys::host::cgroup;

/// The id of the system's root cgroup; a container's mount point has another root.
const ROOT: u64 = 1;

/// The version 2 cgroups.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    nodes: BTreeMap<u64, Node>,
    living: HashMap<String, u64>,
    root: u64,
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The path from the root: `/` or `/system.slice/x`.
    pub path: String,
    /// The parent's id; `None` for the root.
    pub parent: Option<u64>,
    /// Whether the cgroup was removed.
    pub is_removed: bool,
    /// When tiptoe found the cgroup, or the kernel reported its creation.
    pub since: Instant,
}

impl Tree {
    /// Returns the cgroups below a mount point.
    pub fn walk(root: &Path) -> Tree {
        let mut tree = Tree::default();
        for (id, path) in cgroup::walk(root) {
            tree.add(id, &path.to_string_lossy());
        }
        tree
    }

    /// Returns the cgroup at the mount point: the system's root, or a container's.
    pub fn root(&self) -> u64 {
        self.root
    }

    pub(super) fn is_whole(&self) -> bool {
        self.root == ROOT
    }

    pub(super) fn visit_again(&mut self, root: &Path) {
        let now: Vec<(u64, PathBuf)> = cgroup::walk(root).collect();
        let there: BTreeSet<u64> = now.iter().map(|(id, _)| *id).collect();
        let living = self.living.values().copied();
        let gone: Vec<u64> = living.filter(|id| !there.contains(id)).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        for (id, path) in now {
            self.add(id, &path.to_string_lossy());
        }
    }

    /// Adds an existing cgroup.
    pub fn add(&mut self, id: u64, path: &str) {
        self.add_since(id, path, Instant::now());
    }

    pub(super) fn add_since(&mut self, id: u64, path: &str, since: Instant) {
        if self.nodes.contains_key(&id) {
            return;
        }
        let path = if path.is_empty() { "/" } else { path };
        if path == "/" {
            self.root = id;
        }
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        let above = if above.is_empty() { "/" } else { above };
        let parent = match path {
            "/" => None,
            _ => self.living.get(above).copied(),
        };
        if let Some(before) = self.living.insert(path.to_owned(), id) {
            // The removal of an earlier cgroup at this path was not reported.
            self.remove(before);
            self.living.insert(path.to_owned(), id);
        }
        let node = Node {
            path: path.to_owned(),
            parent,
            is_removed: false,
            since,
        };
        self.nodes.insert(id, node);
    }

    /// Marks a cgroup as removed.
    pub fn remove(&mut self, id: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_removed = true;
            if self.living.get(&node.path) == Some(&id) {
                self.living.remove(&node.path);
            }
        }
    }

    pub(super) fn forget(&mut self, id: u64) {
        self.remove(id);
        self.nodes.remove(&id);
    }

    /// Returns a cgroup.
    pub fn get(&self, id: u64) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Returns whether the cgroup was removed.
    pub fn is_removed(&self, id: u64) -> bool {
        self.get(id).is_some_and(|node| node.is_removed)
    }

    /// Returns all cgroups by id.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// Returns a cgroup and its ancestors, innermost first. Bounded, because a reused id could make a cycle.
    pub fn line(&self, id: u64) -> impl Iterator<Item = u64> {
        let line = std::iter::successors(Some(id), |id| self.nodes.get(id)?.parent);
        line.take(self.nodes.len().max(1))
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        for (id, path) in [(1, "/"), (10, "/a"), (20, "/a/b"), (30, "/c")] {
            tree.add(id, path);
        }
        tree
    }

    #[test]
    fn a_line_has_all_ancestors() {
        let tree = tree();
        assert_eq!(tree.line(20).collect::<Vec<_>>(), [20, 10, 1]);
        assert_eq!(tree.line(1).collect::<Vec<_>>(), [1]);
        assert_eq!(tree.line(99).collect::<Vec<_>>(), [99]);
    }

    #[test]
    fn a_path_may_be_used_again() {
        let mut tree = tree();
        tree.remove(20);
        tree.remove(10);
        tree.add(40, "/a");
        tree.add(50, "/a/b");
        assert_eq!(tree.line(50).collect::<Vec<_>>(), [50, 40, 1]);
        assert_eq!(tree.line(20).collect::<Vec<_>>(), [20, 10, 1]);
        assert!(tree.get(20).unwrap().is_removed && !tree.get(50).unwrap().is_removed);
        tree.add(60, "/a/b");
        assert!(tree.get(50).unwrap().is_removed);
        tree.forget(60);
        assert_eq!((tree.get(60), tree.len()), (None, 6));
    }

    #[test]
    fn a_mount_point_is_walked() {
        let root = std::env::temp_dir().join(format!("tiptoe-tree-{}", std::process::id()));
        let below = root.join("one/two");
        fs::create_dir_all(&below).unwrap();
        let tree = Tree::walk(&root);
        let id = fs::metadata(&below).unwrap().ino();
        assert_eq!(tree.get(id).unwrap().path, "/one/two");
        assert_eq!(tree.line(id).count(), 3);
        assert!(!tree.is_whole() && tree.root() == fs::metadata(&root).unwrap().ino());

        let mut tree = tree;
        // Created before the removal, because inode numbers are reused.
        fs::create_dir(root.join("other")).unwrap();
        fs::remove_dir(&below).unwrap();
        tree.visit_again(&root);
        assert!(tree.get(id).unwrap().is_removed);
        assert!(
            tree.iter()
                .any(|(_, node)| node.path == "/other" && !node.is_removed)
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
