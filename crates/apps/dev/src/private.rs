use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::temporary::TemporaryGuard;

/// A folder that no other user can write to, because the bench may run its programs as root.
#[derive(Debug)]
pub(crate) struct PrivateFolder(TemporaryGuard);

impl PrivateFolder {
    pub(crate) fn new(words: &str) -> io::Result<PrivateFolder> {
        let random = RandomState::new().build_hasher().finish();
        PrivateFolder::at(std::env::temp_dir().join(format!("tiptoe-{words}-{random:016x}")))
    }

    /// Fails if a file or a link exists at this path.
    fn at(path: PathBuf) -> io::Result<PrivateFolder> {
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(PrivateFolder(TemporaryGuard::folder(path)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    #[test]
    fn an_existing_folder_is_not_used() {
        let own = PrivateFolder::new("test").expect("a folder");
        let mode = std::fs::metadata(own.path()).expect("it is there").mode();
        assert_eq!(mode & 0o077, 0);
        let link = own.path().join("link");
        symlink(own.path(), &link).expect("a link");
        for taken in [own.path().to_owned(), link] {
            let error = PrivateFolder::at(taken).expect_err("it is taken");
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        let other = PrivateFolder::new("test").expect("a folder");
        assert_ne!(own.path(), other.path());
    }
}
