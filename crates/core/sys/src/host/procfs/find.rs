use std::prelude::rust_2024::*;

use std::fs;
use std::path::Path;

use super::{Process, numbers};
use crate::host::error::{Error, Result};

impl Process {
    /// Returns all processes in this pid namespace, ascending.
    pub fn all() -> Result<Vec<Self>> {
        let proc = Path::new("/proc");
        let entries = fs::read_dir(proc).map_err(|e| Error::of_file(proc, e))?;
        let mut pids = numbers(entries);
        pids.sort_unstable();
        Ok(pids.into_iter().map(|pid| Self { pid }).collect())
    }
}
