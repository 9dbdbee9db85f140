use std::fs;
use std::path::{Path, PathBuf};

use tiptoe_kernel::cgroups::Tree;
use tiptoe_sys::host::cgroup::Cgroups;

use crate::error::Error;
use crate::temporary::TemporaryGuard;
use crate::workshop::failed;

/// A cgroup with the children `c0`, `c1`, …
pub(super) struct Folder {
    cgroup: TemporaryGuard,
    pub(super) root: PathBuf,
    pub(super) tree: Tree,
    pub(super) is_perfs: bool,
}

impl Folder {
    pub(super) fn new(children: usize) -> Result<Folder, Error> {
        let found = Cgroups::detect()?;
        let root = found.v2.as_deref().ok_or(Error::Missing)?;
        let path = root.join(format!("tiptoe-bench-{}", std::process::id()));
        let making = || failed("making cgroups");
        fs::create_dir(&path).map_err(making())?;
        let mut folder = Folder {
            root: root.to_owned(),
            tree: Tree::default(),
            cgroup: TemporaryGuard::cgroup(path),
            is_perfs: found.for_perf() == Some(root),
        };
        for child in 0..children {
            fs::create_dir(folder.child(child)).map_err(making())?;
        }
        folder.tree = Tree::walk(root);
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        self.cgroup.path()
    }

    pub(super) fn child(&self, at: usize) -> PathBuf {
        self.path().join(format!("c{at}"))
    }
}
