//! Reads a target's files piece by piece. Debug files are looked up inside the target's root, but files in
//! debuginfod's cache inside tiptoe's root.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use tiptoe_symbol::{Content, DebugSource, Pieces};
use tiptoe_sys::host::memory;
use tiptoe_sys::host::procfs::Process;

use crate::debuginfod;

/// Finds and reads the debug files of one mapped file.
pub struct TargetFiles {
    process: Process,
    /// The mapped file's path, inside the target's root.
    path: PathBuf,
}

/// A file that other processes may change while tiptoe reads it.
struct ChangeableFile {
    file: Rc<File>,
    size: u64,
}

/// Returns a file's content. Its pieces are copied, because a piece must not change after it was read.
pub fn content(file: impl Into<Rc<File>>) -> std::io::Result<Content> {
    let file = file.into();
    let size = file.metadata()?.len();
    Ok(Content::new(ChangeableFile { file, size }))
}

impl Pieces for ChangeableFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, piece: &mut [u8]) -> Option<()> {
        self.file.read_exact_at(piece, at).ok()
    }

    fn has_room(&self, bytes: u64) -> bool {
        memory::has_room(bytes)
    }
}

impl TargetFiles {
    /// Finds the debug files of a file that this process maps.
    pub fn new(process: Process, path: &Path) -> TargetFiles {
        TargetFiles {
            process,
            path: path.to_owned(),
        }
    }
}

impl DebugSource for TargetFiles {
    fn image_path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn read(&self, path: &Path) -> Option<Content> {
        let process = match debuginfod::cache().is_some_and(|cache| path.starts_with(cache)) {
            true => Process::current(),
            false => self.process,
        };
        let file = process.open_in_root(path).ok()?;
        content(file).ok()
    }

    fn debuginfod_cache(&self) -> Option<PathBuf> {
        debuginfod::cache().map(Path::to_owned)
    }

    fn fetch(&self, build_id: &str) -> Option<(PathBuf, Content)> {
        let path = debuginfod::fetch(build_id)?;
        let file = Process::current().open_in_root(&path).ok()?;
        Some((path, content(file).ok()?))
    }
}
