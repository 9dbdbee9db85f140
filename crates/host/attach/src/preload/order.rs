//! Puts the agent (tiptoe's preloaded library) after the address sanitizer's runtime, which ends the program if
//! another library precedes it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::inject::needed_libraries;

use super::interpreter;

const NAMES: [&[u8]; 2] = [b"libasan.so", b"libclang_rt.asan"];

/// Returns the runtime that must precede the agent; `preload` is the program's own LD_PRELOAD. The runtime's bare name
/// suffices, because the loader searches the same paths for LD_PRELOAD as for a needed library.
pub(super) fn runtime_that_must_be_first(
    program: &Path,
    preload: Option<&OsStr>,
) -> Option<OsString> {
    preload.and_then(preloaded).or_else(|| {
        let needed = needed_libraries(&interpreter(program))?;
        needed
            .into_iter()
            .map(OsString::from)
            .find(|name| is_runtime(name.as_bytes()))
    })
}

fn preloaded(list: &OsStr) -> Option<OsString> {
    let mut names = list.as_bytes().split(|byte| b": ".contains(byte));
    let found = names.find(|name| is_runtime(name))?;
    Some(OsStr::from_bytes(found).to_owned())
}

fn is_runtime(name: &[u8]) -> bool {
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    NAMES.iter().any(|start| file.starts_with(start))
}
