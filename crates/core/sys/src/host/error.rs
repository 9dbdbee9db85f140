//! Errors of questions to the kernel about a process.

use std::prelude::rust_2024::*;

use std::io;
use std::path::{Path, PathBuf};

use super::capabilities::SETCAP;

/// The result of a question to the kernel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the kernel did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process does not exist, or ended in between.
    #[error("no such process: {pid}")]
    NoSuchProcess {
        /// The requested process id.
        pid: u32,
    },
    /// The process is in a nested pid namespace, and the kernel reports it under ids that neither
    /// we nor it use.
    #[error(
        "process {pid} is in a pid namespace within this one, and the kernel reports it under ids that neither has"
    )]
    OtherNamespace {
        /// The requested process id.
        pid: u32,
    },
    /// The kernel refused; the hint names the missing right.
    #[error("no permission to {what}")]
    PermissionDenied {
        /// The operation.
        what: String,
        /// The missing command or right.
        hint: String,
    },
    /// A device, pipe or directory in place of a file.
    #[error("{}: not a regular file", path.display())]
    NotRegularFile {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// A file system that another user's program serves (FUSE), or may serve.
    #[error(
        "{}: another user's program serves its file system (FUSE), or it is unmounted: reading may never end",
        path.display()
    )]
    ForeignServer {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The mapped file is not the one at its path.
    #[error("{}: the file was replaced after it was mapped", path.display())]
    FileReplaced {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The limit on open files is too low.
    #[error("{needed} file descriptors are needed, the limit is {limit}")]
    DescriptorLimit {
        /// How many are needed.
        needed: u64,
        /// How many are allowed.
        limit: u64,
    },
    /// A kernel file not in its documented format.
    #[error("cannot understand {what}")]
    Malformed {
        /// The file or field.
        what: String,
    },
    /// Any other failure.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Reading other processes needs the same user or a capability.
fn ptrace_hint() -> String {
    format!("run as the user of that process, or `{SETCAP}`")
}

impl Error {
    /// Returns a command or right that would help, if known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::PermissionDenied { hint, .. } => Some(hint.clone()),
            Self::DescriptorLimit { needed, .. } => Some(format!(
                "`ulimit -n {needed}` as root, or request fewer functions"
            )),
            Self::OtherNamespace { .. } => Some("run tiptoe outside of both".into()),
            Self::FileReplaced { .. } => Some("restart the program, or trace it as root".into()),
            _ => None,
        }
    }

    pub(crate) fn of_process(pid: u32, what: impl Into<String>, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::NoSuchProcess { pid },
            Some(libc::EACCES | libc::EPERM) => Self::PermissionDenied {
                what: format!("{} of process {pid}", what.into()),
                hint: ptrace_hint(),
            },
            _ => Self::Io {
                what: format!("{} of process {pid}", what.into()),
                source,
            },
        }
    }

    pub(crate) fn of_file(path: &Path, source: io::Error) -> Self {
        Self::Io {
            what: path.display().to_string(),
            source,
        }
    }

    pub(crate) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
}
