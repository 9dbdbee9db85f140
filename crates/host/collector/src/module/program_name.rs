//! The names by which users know modules.

use std::ffi::OsStr;
use std::path::Path;

use tiptoe_symbol::Image;
use tiptoe_sys::host::procfs::Process;

/// Returns a module's name. A program has the name by which it was started, because its user knows that name: Debian's
/// redis-server is a link to redis-check-rdb.
pub(super) fn name_of(process: Process, path: &Path, is_program: bool, image: &Image) -> String {
    let base = path.file_name().map(OsStr::to_string_lossy);
    let base = base.map(|base| base.into_owned());
    let base = base.unwrap_or_else(|| path.display().to_string());
    match (is_program, process.comm()) {
        (true, Ok(comm)) if started_as(process, &comm) => comm,
        (true, _) => base,
        (false, _) => image.header().soname.clone().unwrap_or(base),
    }
}

pub fn started_as(process: Process, name: &str) -> bool {
    let first = process
        .command_line()
        .ok()
        .and_then(|line| line.into_iter().next());
    first.is_some_and(|first| {
        let first = first.to_string_lossy();
        // redis writes `redis-server *:6379` over its arguments.
        let word = first.split(' ').next().unwrap_or_default();
        Path::new(word).file_name().is_some_and(|base| base == name)
    })
}
