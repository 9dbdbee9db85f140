//! The case `dl_find_object`: glibc's own lock-free answer to which library an address is in. It knows
//! libraries and no probes, and is asked over those that a small C program really loads.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;

const PROGRAM: &str = include_str!("find_object.c");

/// The compiled program. Its folder goes with this value.
pub(super) struct FindObject {
    folder: PathBuf,
}

impl FindObject {
    /// Compiles it; `None` where this libc has no such function.
    pub(super) fn compile() -> Result<Option<FindObject>, Error> {
        let folder = std::env::temp_dir().join(format!("tiptoe-resolve-{}", std::process::id()));
        let this = FindObject { folder };
        let write = |folder: &Path| {
            std::fs::create_dir_all(folder)?;
            std::fs::write(folder.join("find_object.c"), PROGRAM)
        };
        write(&this.folder).map_err(|error| Error::Io {
            what: "writing the benched program",
            error,
        })?;
        let arguments = ["-O2", "-pthread", "-o", "find-object", "find_object.c"];
        let output = Command::new("cc")
            .args(arguments)
            .current_dir(&this.folder)
            .output();
        let output = output.map_err(|error| Error::Io {
            what: "running `cc`",
            error,
        })?;
        Ok(output.status.success().then_some(this))
    }

    /// How many libraries there are, and millions of lookups a second in so many threads.
    pub(super) fn measure(&self, threads: u32, ms: u32) -> Result<(usize, f64), Error> {
        let output = Command::new(self.folder.join("find-object"))
            .args([threads.to_string(), ms.to_string()])
            .output();
        let output = output.map_err(|error| Error::Io {
            what: "starting the benched program",
            error,
        })?;
        let answer = String::from_utf8_lossy(&output.stdout);
        let numbers = answer.trim().split_once(' ');
        let parsed =
            numbers.and_then(|(objects, rate)| Some((objects.parse().ok()?, rate.parse().ok()?)));
        parsed.ok_or_else(|| Error::Answer(answer.trim().to_owned()))
    }
}

impl Drop for FindObject {
    fn drop(&mut self) {
        // A folder in /tmp that stays behind harms nobody.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
