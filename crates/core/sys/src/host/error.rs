use std::prelude::rust_2024::*;

use std::io;
use std::path::{Path, PathBuf};

use super::capabilities::{Cap, CapSet, SETCAP, in_first_user_namespace};

/// The result of a question to the kernel.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the kernel did not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process does not exist, or has ended.
    #[error("no such process: {pid}")]
    NoSuchProcess {
        /// The id.
        pid: u32,
    },
    /// A process in a nested pid namespace.
    #[error(
        "process {pid} is in a pid namespace within this one, and the kernel reports it under ids that neither has"
    )]
    OtherNamespace {
        /// The id.
        pid: u32,
    },
    /// The kernel refused.
    #[error("no permission to {what}")]
    PermissionDenied {
        /// The operation.
        what: String,
        /// A command or a right that would help.
        hint: String,
    },
    /// A device, pipe or directory.
    #[error("{}: not a regular file", path.display())]
    NotRegularFile {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// A file system that another user's program may serve (FUSE).
    #[error(
        "{}: another user's program serves its file system (FUSE), or it is unmounted: reading may never end",
        path.display()
    )]
    ForeignServer {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The mapped file is no longer at its path.
    #[error("{}: the file was replaced after it was mapped", path.display())]
    FileReplaced {
        /// The path as the process sees it.
        path: PathBuf,
    },
    /// The limit on open files is too low.
    #[error("{needed} file descriptors are needed, the limit is {limit}")]
    DescriptorLimit {
        /// How many descriptors are needed.
        needed: u64,
        /// How many descriptors are allowed.
        limit: u64,
    },
    /// A kernel file in an unknown format.
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

pub(super) fn read_text(path: &str) -> Result<String> {
    let path = Path::new(path);
    std::fs::read_to_string(path).map_err(|e| Error::of_file(path, e))
}

fn ptrace_hint() -> String {
    let own = rustix::thread::capabilities(None);
    let held = own.map_or(0, |own| own.effective.bits());
    hint_of_reader(CapSet(held), in_first_user_namespace())
}

/// The reader must be of the same user, or hold cap_sys_ptrace in the other process's user namespace.
fn hint_of_reader(held: CapSet, is_in_first_user_namespace: bool) -> String {
    match (held.has(Cap::SysPtrace), is_in_first_user_namespace) {
        (false, _) => format!("run as the user of that process, or `{SETCAP}`"),
        (true, false) => {
            "cap_sys_ptrace is held in this user namespace only: run tiptoe outside of it (of the container)"
                .to_owned()
        }
        (true, true) => {
            "cap_sys_ptrace is held, so a security module (LSM) or the kernel itself protects that process from all others"
                .to_owned()
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_that_is_held_is_not_hinted_at() {
        let held = CapSet(1 << (Cap::SysPtrace as u32));
        for (held, is_first, said) in [
            (CapSet(0), true, "run as the user of that process, or `"),
            (CapSet(0), false, "run as the user of that process, or `"),
            (
                held,
                false,
                "cap_sys_ptrace is held in this user namespace only",
            ),
            (
                held,
                true,
                "cap_sys_ptrace is held, so a security module (LSM)",
            ),
        ] {
            let hint = hint_of_reader(held, is_first);
            assert!(hint.starts_with(said), "{hint}");
        }
    }
}
