//! What can go wrong when asking the kernel about a process.

use std::prelude::rust_2024::*;

use std::io;
use std::path::{Path, PathBuf};

use super::capabilities::SETCAP;

/// The result of a question to the kernel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A question to the kernel that got no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process does not exist, or ended while it was being looked at.
    #[error("no such process: {pid}")]
    NoSuchProcess {
        /// The process id asked for.
        pid: u32,
    },
    /// Its ids are others than those that we know it by, and neither is the kernel's own.
    #[error(
        "process {pid} is in a pid namespace within this one, and the kernel tells what it does by ids that neither has"
    )]
    OtherNamespace {
        /// The process id asked for.
        pid: u32,
    },
    /// The kernel refused; the hint says what would make it agree.
    #[error("no permission to {what}")]
    PermissionDenied {
        /// What was tried.
        what: String,
        /// The command or right that is missing.
        hint: String,
    },
    /// A device, pipe or directory where a file was expected.
    #[error("{}: not a regular file", path.display())]
    NotRegularFile {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// A file system that a program of another user serves (FUSE), or may serve.
    #[error(
        "{}: another user's program serves its file system (FUSE), or it is unmounted: reading may never end",
        path.display()
    )]
    ForeignServer {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The file that is mapped is no longer the one found under its path.
    #[error("{}: the file was replaced after it was mapped", path.display())]
    FileReplaced {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The limit on open files is too low for what was asked.
    #[error("{needed} file descriptors are needed, the limit is {limit}")]
    DescriptorLimit {
        /// How many the request needs.
        needed: u64,
        /// How many this process may have.
        limit: u64,
    },
    /// A file of the kernel did not read as documented.
    #[error("cannot understand {what}")]
    Malformed {
        /// Which file or field.
        what: String,
    },
    /// Any other failure, with the call that failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Looking into another process takes the same user, or a capability.
fn ptrace_hint() -> String {
    format!("run as the user of that process, or `{SETCAP}`")
}

impl Error {
    /// What to do about it: a command or a right, where one is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::PermissionDenied { hint, .. } => Some(hint.clone()),
            Self::DescriptorLimit { needed, .. } => Some(format!(
                "`ulimit -n {needed}` as root, or ask for fewer functions"
            )),
            Self::OtherNamespace { .. } => Some("run tiptoe outside of both".into()),
            Self::FileReplaced { .. } => Some("restart the program, or trace it as root".into()),
            _ => None,
        }
    }

    /// The error of a failed access to a file below `/proc/PID`.
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

    /// The error of a failed access to a file of the machine.
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
