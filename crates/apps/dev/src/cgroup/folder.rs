//! The cgroups of a bench.

use std::fs;
use std::path::{Path, PathBuf};

use tiptoe_kernel::cgroups::Tree;
use tiptoe_sys::host::cgroup::Cgroups;

use crate::error::Error;
use crate::workshop::failed;

/// A cgroup with children `c0` and so on, which are removed when this is dropped.
pub(super) struct Folder {
    path: PathBuf,
    children: usize,
    /// The mount point, and the tree below it.
    pub(super) root: PathBuf,
    pub(super) tree: Tree,
    /// Whether perf's events of cgroups can use them.
    pub(super) is_perfs: bool,
}

impl Folder {
    pub(super) fn new(children: usize) -> Result<Folder, Error> {
        let found = Cgroups::detect()?;
        let root = found.v2.as_deref().ok_or(Error::Missing)?;
        let name = format!("tiptoe-bench-{}", std::process::id());
        let mut folder = Folder {
            root: root.to_owned(),
            tree: Tree::default(),
            path: root.join(name),
            children,
            is_perfs: found.for_perf() == Some(root),
        };
        let making = || failed("making cgroups");
        fs::create_dir(&folder.path).map_err(making())?;
        for child in 0..children {
            fs::create_dir(folder.child(child)).map_err(making())?;
        }
        folder.tree = Tree::walk(root);
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn child(&self, at: usize) -> PathBuf {
        self.path.join(format!("c{at}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A cgroup that still has a task cannot be removed.
        for child in 0..self.children {
            let _ = fs::remove_dir(self.child(child));
        }
        let _ = fs::remove_dir(&self.path);
    }
}
