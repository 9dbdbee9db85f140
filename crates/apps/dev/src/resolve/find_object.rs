//! The case `dl_find_object`: glibc's lock-free lookup of the library at an address, in a small C program.

use std::process::Command;

use crate::error::Error;
use crate::workshop::{Workshop, failed};

const PROGRAM: &str = include_str!("find_object.c");

pub(super) struct FindObject(Workshop);

impl FindObject {
    /// Compiles the program; `None` if this libc lacks the function.
    pub(super) fn compile() -> Result<Option<FindObject>, Error> {
        match Workshop::new("resolve", PROGRAM) {
            Ok(workshop) => Ok(Some(FindObject(workshop))),
            Err(Error::Compile(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the number of libraries, and millions of lookups per second.
    pub(super) fn measure(&self, threads: u32, ms: u32) -> Result<(usize, f64), Error> {
        let output = Command::new(self.0.folder().join("program"))
            .args([threads.to_string(), ms.to_string()])
            .output();
        let output = output.map_err(failed("starting the benched program"))?;
        let answer = String::from_utf8_lossy(&output.stdout);
        let numbers = answer.trim().split_once(' ');
        let parsed =
            numbers.and_then(|(objects, rate)| Some((objects.parse().ok()?, rate.parse().ok()?)));
        parsed.ok_or_else(|| Error::Answer(answer.trim().to_owned()))
    }
}
