//! A place for a uprobe, and why the kernel may refuse it.

use std::io;
use std::path::PathBuf;

use crate::Error;

/// An instruction in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelProbe {
    /// The file as *tiptoe* sees it. For a container, use [`tiptoe_sys::host::procfs::path_of`] with a file from
    /// [`tiptoe_sys::host::Process::open_mapped`]. That file must stay open until the last probe is opened.
    pub path: PathBuf,
    /// The offset in the file.
    pub offset: u64,
}

/// A refused probe.
#[derive(Debug)]
pub struct RefusedProbe {
    /// The index among the given probes.
    pub probe: usize,
    /// The reason.
    pub error: Error,
}

pub(crate) fn refusal(source: io::Error, probe: &KernelProbe) -> Error {
    let (path, offset) = (probe.path.clone(), probe.offset);
    match source.raw_os_error() {
        Some(errno::EPERM | errno::EACCES) => Error::PermissionDenied,
        Some(errno::ESRCH) => Error::NoSuchThread,
        Some(errno::ENOENT) => Error::NoSuchFile { path },
        Some(errno::EINVAL | errno::EIO | errno::EBADF) => Error::BadOffset { path, offset },
        Some(errno::ENOTSUPP | errno::EOPNOTSUPP) => Error::Unprobeable { path, offset },
        Some(errno::E2BIG | errno::ENOMEM | errno::ENFILE | errno::EMFILE | errno::ENOSPC) => {
            Error::NoRoom
        }
        _ => Error::io(format!("arm a uprobe at {}:{offset:#x}", path.display()))(source),
    }
}

pub(crate) mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const ESRCH: i32 = 3;
    pub const EIO: i32 = 5;
    pub const ENXIO: i32 = 6;
    pub const E2BIG: i32 = 7;
    pub const EBADF: i32 = 9;
    pub const ENOMEM: i32 = 12;
    pub const EACCES: i32 = 13;
    pub const ENODEV: i32 = 19;
    pub const EINVAL: i32 = 22;
    pub const ENFILE: i32 = 23;
    pub const EMFILE: i32 = 24;
    pub const ENOSPC: i32 = 28;
    pub const ENOSYS: i32 = 38;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ENOTSUPP: i32 = 524;
}
